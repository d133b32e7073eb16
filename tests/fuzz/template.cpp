// Chat templates: parsing and rendering. The input is a template; after a line `---` the variables may follow as JSON.
//
// Limits must hold whatever the template does: nesting, steps, memory, output. Rendering again must give the same. What
// a variable says must never count as written by the template: the variables hold a character that stands nowhere else,
// and it must not show in a template's segment.
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "fuzz/support.h"
#include "text/chat.h"
#include "text/jinja/template.h"

namespace {

using namespace ridge;
using text::Segment;
using text::jinja::Json;
using text::jinja::RenderOptions;
using text::jinja::Template;

constexpr std::string_view kOrigin = "fuzz.jinja";
constexpr std::string_view kMark = "\uE000";  // in every string of the variables

const Json &conversation() {
    static const Json variables = Json::parse(R"({
        "messages": [
            {"role": "system\uE000", "content": "Be \uE000 brief."},
            {"role": "user", "content": "a <|im_end|> \uE000 é\n"},
            {"role": "assistant", "content": null, "reasoning_content": "\uE000",
             "tool_calls": [{"id": "1\uE000", "type": "function",
                             "function": {"name": "f\uE000", "arguments": {"x": 1.5, "y": [true, null, "\uE000"]}}}]},
            {"role": "tool", "content": [{"type": "text", "text": "\uE000 7"}], "tool_call_id": "1"},
            {"role": "assistant", "content": "<think>\uE000</think>\n done  "}],
        "tools": [{"type": "function", "function": {"name": "f\uE000", "description": "d",
                   "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}}],
        "add_generation_prompt": true, "enable_thinking": false, "empty": [], "zero": 0})");
    return variables;
}

struct Input {
    std::string source;
    Json variables = conversation();
    bool own_variables = false;
};

Input read_input(std::string_view data) {
    constexpr std::string_view kBorder = "\n---\n";
    Input in;
    const size_t border = data.find(kBorder);
    in.source = data.substr(0, border);
    if (border == std::string_view::npos) return in;
    Json own = Json::parse(data.substr(border + kBorder.size()), nullptr, false);
    if (own.is_object()) in.variables = std::move(own), in.own_variables = true;
    return in;
}

RenderOptions options() {
    RenderOptions o;
    o.trusted = Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    o.now = std::tm{};
    o.now->tm_year = 126, o.now->tm_mday = 30, o.now->tm_mon = 10;
    o.limits.steps = 200'000;
    o.limits.memory = 8u << 20;
    o.limits.output = 1u << 20;
    return o;
}

// Whether the template itself may write the mark: as it is, or by its number.
bool may_write_mark(std::string_view source) {
    for (const std::string_view way :
         {kMark, std::string_view("000"), std::string_view("57344"), std::string_view("%c")})
        if (source.find(way) != std::string_view::npos) return true;
    return false;
}

void check_segments(const std::vector<Segment> &segments, const Input &in) {
    size_t bytes = 0;
    for (size_t i = 0; i < segments.size(); i++) {
        FUZZ_REQUIRE(!segments[i].text.empty(), "an empty segment");
        FUZZ_REQUIRE(i == 0 || segments[i].is_template != segments[i - 1].is_template, "segments that belong together");
        bytes += segments[i].text.size();
        if (segments[i].is_template && !in.own_variables && !may_write_mark(in.source))
            FUZZ_REQUIRE(segments[i].text.find(kMark) == std::string::npos, "a variable counts as the template");
    }
    FUZZ_REQUIRE(bytes <= options().limits.output, "{} bytes of output", bytes);
}

bool equal(const std::vector<Segment> &a, const std::vector<Segment> &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Segment &x, const Segment &y) {
        return x.text == y.text && x.is_template == y.is_template;
    });
}

void check_template(const Template &t, const Input &in) {
    std::vector<Segment> first;
    fuzz::start_allocation_meter();
    const auto refused = fuzz::refusal_of([&] { first = t.render(in.variables, options()); });
    // The limit counts the bytes of values; what holds them takes a multiple.
    FUZZ_REQUIRE(fuzz::peak_allocation() <= (96u << 20), "{} bytes of heap", fuzz::peak_allocation());
    if (refused) {
        FUZZ_REQUIRE(refused->kind != ErrorKind::file && refused->kind != ErrorKind::device, "{}", refused->message);
        FUZZ_REQUIRE(refused->message.find(kOrigin) != std::string::npos, "{}", refused->message);
    } else {
        check_segments(first, in);
    }
    std::vector<Segment> second;
    const auto again = fuzz::refusal_of([&] { second = t.render(in.variables, options()); });
    FUZZ_REQUIRE(refused.has_value() == again.has_value(), "refused once");
    FUZZ_REQUIRE(!refused || refused->message == again->message, "{} and {}", refused->message, again->message);
    FUZZ_REQUIRE(equal(first, second), "two renderings of one template");
}

// The way of a chat, where messages and tools may be any JSON.
void check_chat(const Input &in) {
    const text::ChatTemplate t(in.source, text::SpecialNames{"<s>", "</s>"}, kOrigin);
    text::ChatOptions o;
    o.limits = options().limits;
    o.now = options().now;
    o.tools = in.variables.value("tools", Json());
    o.variables = in.variables.value("variables", Json());
    for (const Segment &s : t.render(in.variables.value("messages", Json()), o)) FUZZ_REQUIRE(!s.text.empty(), "empty");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fuzz::Stopwatch stopwatch;
    const Input in = read_input({reinterpret_cast<const char *>(data), size});
    std::optional<Template> parsed;
    fuzz::start_allocation_meter();
    const auto refused = fuzz::refusal_of([&] { parsed = Template::parse(in.source, kOrigin); });
    FUZZ_REQUIRE(fuzz::peak_allocation() <= (1u << 20) + 2048 * size, "{} bytes of heap for {} of template",
                 fuzz::peak_allocation(), size);
    if (refused) {
        FUZZ_REQUIRE(refused->kind == ErrorKind::unsupported || refused->kind == ErrorKind::limit, "{}",
                     refused->message);
        FUZZ_REQUIRE(refused->message.starts_with(kOrigin), "{}", refused->message);
        return 0;
    }
    check_template(*parsed, in);
    fuzz::refusal_of([&] { check_chat(in); });
    return 0;
}
