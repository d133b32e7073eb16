#include "text/pre_tokenizer.h"

#include <fmt/ranges.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "gguf/printable.h"

namespace ridge::text {

namespace {

std::string pcre2_message(int code) {
    std::array<char, 256> text{};
    pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR *>(text.data()), text.size());
    return text.data();
}

std::string known_names() {
    std::vector<std::string_view> names;
    for (const PreTokenizerRow &row : pre_tokenizer_rows())
        names.insert(names.end(), row.names.begin(), row.names.end());
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

struct PreTokenizer::Pattern {
    pcre2_code *code = nullptr;

    Pattern(std::string_view source, uint32_t options) {
        int error = 0;
        PCRE2_SIZE offset = 0;
        code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), options, &error, &offset,
                             nullptr);
        RIDGE_ASSERT(code != nullptr);
        // Where no code may be generated at run time the interpreter does the same, slower.
        pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    }
    ~Pattern() { pcre2_code_free(code); }
    Pattern(const Pattern &) = delete;
    Pattern &operator=(const Pattern &) = delete;
};

struct PreTokenizer::Match {
    pcre2_match_data *data;

    explicit Match(const Pattern &pattern) : data(pcre2_match_data_create_from_pattern(pattern.code, nullptr)) {
        if (data == nullptr) fail(ErrorKind::limit, "out of memory while cutting text into tokens");
    }
    ~Match() { pcre2_match_data_free(data); }
    Match(Match &&other) noexcept : data(std::exchange(other.data, nullptr)) {}
    Match &operator=(Match &&) = delete;
};

PreTokenizer::PreTokenizer(std::string_view name, std::string_view origin) {
    const auto rows = pre_tokenizer_rows();
    const auto row = std::ranges::find_if(
        rows, [&](const PreTokenizerRow &r) { return std::ranges::find(r.names, name) != r.names.end(); });
    if (row == rows.end() && name.empty()) {
        fail(
            ErrorKind::unsupported,
            "{}: the file names no pre-tokenizer (tokenizer.ggml.pre is absent); known: {}. Choose one with --pre NAME",
            origin, known_names());
    }
    if (row == rows.end()) {
        fail(ErrorKind::unsupported,
             "{}: unknown pre-tokenizer '{}' (tokenizer.ggml.pre); known: {}. Override with --pre NAME", origin,
             gguf::printable(name), known_names());
    }
    row_ = &*row;
    for (std::string_view source : row_->patterns) {
        patterns_.push_back(std::make_shared<const Pattern>(source, PCRE2_UTF));
    }
    for (std::string_view source : row_->byte_patterns) {
        patterns_.push_back(std::make_shared<const Pattern>(source, 0));
    }
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view> &pieces) const {
    std::vector<Match> matches;
    for (const auto &pattern : patterns_) matches.emplace_back(*pattern);
    while (!text.empty()) {
        const size_t valid = utf8_valid_prefix(text);
        if (valid > 0) split_stage(0, text.substr(0, valid), matches, pieces);
        text.remove_prefix(valid);
        size_t bad = 0;
        while (bad < text.size()) {
            const Utf8Step step = utf8_step(text.substr(bad));
            if (step.kind == Utf8::valid) break;
            bad += step.length;
        }
        if (bad > 0) pieces.push_back(text.substr(0, bad));
        text.remove_prefix(bad);
    }
}

void PreTokenizer::split_stage(size_t stage, std::string_view text, std::span<Match> matches,
                               std::vector<std::string_view> &pieces) const {
    const auto keep = [&](std::string_view piece) {
        if (stage + 1 == patterns_.size()) {
            pieces.push_back(piece);
        } else {
            split_stage(stage + 1, piece, matches, pieces);
        }
    };
    const Pattern &pattern = *patterns_[stage];
    pcre2_match_data *data = matches[stage].data;
    size_t at = 0;
    while (at < text.size()) {
        // The text was checked once: checking its rest for every match would take quadratic time.
        const int rc = pcre2_match(pattern.code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                   PCRE2_NO_UTF_CHECK, data, nullptr);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            fail(ErrorKind::limit, "cutting text into tokens failed at byte {} of {}: {}", at, text.size(),
                 pcre2_message(rc));
        }
        const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(data);
        RIDGE_ASSERT(bounds[1] > bounds[0]);
        if (bounds[0] > at) keep(text.substr(at, bounds[0] - at));
        // Read before the next stage runs: `keep` may end up in a deeper stage, which has its own match data.
        const size_t end = bounds[1];
        keep(text.substr(bounds[0], end - bounds[0]));
        at = end;
    }
    if (at < text.size()) keep(text.substr(at));
}

}  // namespace ridge::text
