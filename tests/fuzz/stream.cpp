// From token bytes to what a user sees: UTF-8 streaming and stop strings. The input, with the escapes of
// support/describe_gguf.h:
//
//   stop WORD      a stop string; it may be empty
//   feed WORD      the bytes of a token
//
// What comes out must not depend on the cuts, must be UTF-8, must be the input where that is UTF-8, and must end before
// the stop string that a plain search finds; nothing is held back that could not become a stop string.
#include <algorithm>

#include "core/utf8.h"
#include "fuzz/support.h"
#include "support/describe_gguf.h"
#include "text/stream.h"

namespace {

using namespace ridge;

// Of all the stop strings in `text`, the one that is complete first, the longest of those: where it starts.
std::optional<size_t> first_stop(std::string_view text, const std::vector<std::string> &stops) {
    size_t end = std::string_view::npos, start = 0;
    for (const std::string &stop : stops) {
        const size_t at = text.find(stop);
        if (at == std::string_view::npos) continue;
        const size_t e = at + stop.size();
        if (e < end || (e == end && at < start)) end = e, start = at;
    }
    if (end == std::string_view::npos) return std::nullopt;
    return start;
}

// The longest end of `text` that starts a stop string without being it.
size_t undecided(std::string_view text, const std::vector<std::string> &stops) {
    size_t most = 0;
    for (const std::string &stop : stops)
        for (size_t n = std::min(stop.size() - 1, text.size()); n > most; n--)
            if (text.ends_with(std::string_view(stop).substr(0, n))) most = n;
    return most;
}

// The characters of `bytes` in one go, by looking at one sequence after the other.
std::string characters(std::string_view bytes) {
    std::string out;
    while (!bytes.empty()) {
        const Utf8Step step = utf8_step(bytes);
        if (step.kind == Utf8::valid)
            out += bytes.substr(0, step.length);
        else
            out += kReplacementCharacter;
        bytes.remove_prefix(step.kind == Utf8::incomplete ? bytes.size() : step.length);
    }
    return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fuzz::Stopwatch stopwatch;
    std::vector<std::string> stops, pieces;
    std::string bytes;
    for (const std::string_view line : test::lines_of({reinterpret_cast<const char *>(data), size})) {
        const std::vector<std::string_view> words = test::words_of(line);
        if (words.size() < 2) continue;
        if (words[0] == "stop") stops.push_back(test::unescaped(words[1]));
        if (words[0] == "feed") bytes += pieces.emplace_back(test::unescaped(words[1]));
    }

    text::Utf8Stream stream;
    std::string text;
    for (const std::string &piece : pieces) {
        const std::string out = stream.feed(piece);
        FUZZ_REQUIRE(utf8_valid_prefix(out) == out.size(), "half a character");
        text += out;
    }
    FUZZ_REQUIRE(characters(bytes).starts_with(text), "a character that is not there");
    text += stream.finish();
    FUZZ_REQUIRE(text == characters(bytes), "the cuts show");
    FUZZ_REQUIRE(utf8_valid_prefix(bytes) != bytes.size() || text == bytes, "good text is changed");
    FUZZ_REQUIRE(stream.finish().empty(), "the end comes twice");

    fuzz::refusal_of([&] {
        text::StopMatcher matcher(stops);
        FUZZ_REQUIRE(std::find(stops.begin(), stops.end(), "") == stops.end(), "an empty stop string");
        std::string fed, shown;
        for (const std::string &piece : pieces) {
            fed += piece;
            shown += matcher.feed(piece);
            const auto stop = first_stop(fed, stops);
            FUZZ_REQUIRE(stop.has_value() == matcher.stopped(), "a stop string that one does not see");
            FUZZ_REQUIRE(shown == fed.substr(0, stop.value_or(fed.size() - undecided(fed, stops))), "shown text");
            if (stop) break;
        }
        if (matcher.stopped()) {
            FUZZ_REQUIRE(matcher.feed("more").empty() && matcher.finish().empty(), "text after a stop string");
        } else {
            FUZZ_REQUIRE(shown + matcher.finish() == fed, "the end is lost");
        }
    });
    return 0;
}
