// Jinja templates: the part of the language that chat templates use, rendered as python's jinja2 renders it.
//
// The settings are those that chat templates are written for: trim_blocks, lstrip_blocks, no auto-escaping, the
// immutable sandbox (no method changes a list or a dict), `break` and `continue`, `{% generation %}`, and the functions
// raise_exception, strftime_now, namespace, dict, range, cycler, joiner and the filter tojson. There is no import,
// include, extends or block.
//
// A rendering is a list of segments by who wrote them. Every byte of a string carries whether it came from the template
// or from the variables, through concatenation, slices, filters and methods; what tojson makes of data is data.
//
// A template is input like any other: it may be hostile. Its nesting, its run time, its memory and its output are
// bounded. Every error names the origin, and those of a place in the source its line and column ("model.gguf: chat
// template, line 3, column 12: ..."); a source that is too large and unfit variables have none.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ridge::text::jinja {

// Keeps the order of keys: templates write tools and arguments back as JSON.
using Json = nlohmann::ordered_json;

struct Limits {
    uint64_t steps = 100'000'000;    // expressions and statements evaluated, plus a share of the bytes they handle
    uint64_t memory = 256ull << 20;  // bytes of values alive at once
    uint64_t output = 64ull << 20;   // bytes rendered
    uint32_t depth = 1000;           // expressions, statements and macro calls inside one another
};

// Whether a string found under this key of an object of the variables counts as written by the template.
using TrustedString = bool (*)(std::string_view key, std::string_view value);

struct RenderOptions {
    Json trusted = nullptr;  // an object: further variables, whose strings count as the template's
    TrustedString is_trusted = nullptr;
    std::optional<std::tm> now = std::nullopt;  // what strftime_now formats; the local time where absent
    Limits limits = {};
};

constexpr size_t kMaxSource = 512u << 10;  // bytes of a template

struct Program;  // a parsed template

class Template {
  public:
    // Throws Error{unsupported} for a syntax error or an unknown statement, filter or test, and Error{limit} for
    // nesting without end, too many named arguments or a source of more than kMaxSource bytes; `origin` (the file)
    // opens the message.
    static Template parse(std::string_view source, std::string_view origin);

    // `variables` is an object (or null: none). Segments of the same kind are joined and none is empty. Throws
    // Error{usage} for raise_exception and for what python would raise, Error{limit} where a limit is passed.
    std::vector<Segment> render(const Json &variables, const RenderOptions &options = {}) const;

    const std::string &origin() const { return origin_; }

  private:
    std::string origin_;
    std::shared_ptr<const Program> program_;
};

}  // namespace ridge::text::jinja
