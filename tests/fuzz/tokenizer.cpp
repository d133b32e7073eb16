// Tokenizers: construction from any vocabulary, encoding and decoding of any text. The input is the metadata of a GGUF
// file as support/describe_gguf.h reads it, and with the same escapes what is encoded:
//
//   user WORD          text of a user
//   template WORD      text of a template: it may name control tokens
//   long N WORD        text of a user, WORD many times: what takes more than linear time shows
//
// Ids must exist, a user's text must never become a control token, BOS must not be doubled, the same text must give the
// same ids however it is asked for, and decoding must give the text back where every byte has a token. SentencePiece
// merges are compared with merging by hand.
#include <algorithm>
#include <limits>

#include "core/utf8.h"
#include "fuzz/support.h"
#include "gguf/gguf.h"
#include "support/describe_gguf.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace {

using namespace ridge;
using text::Segment;
using text::Tokenizer;
using text::TokenType;
using text::Vocabulary;

constexpr size_t kMostText = 1 << 16;
constexpr std::string_view kSpaceSymbol = "\u2581";

struct Input {
    std::vector<Segment> segments;
    std::vector<std::string> texts;
};

Input read_input(std::string_view data) {
    Input in;
    for (const std::string_view line : test::lines_of(data)) {
        const std::vector<std::string_view> words = test::words_of(line);
        if (words.size() < 2) continue;
        if (words[0] == "user" || words[0] == "template")
            in.segments.push_back({test::unescaped(words[1]), words[0] == "template"});
        if (words[0] == "user") in.texts.push_back(in.segments.back().text);
        if (words[0] == "long" && words.size() > 2) {
            const std::string piece = test::unescaped(words[2]);
            const auto times = static_cast<uint64_t>(test::integer_of(words[1]));
            std::string text;
            for (uint64_t i = 0; i < times && text.size() + piece.size() <= kMostText && !piece.empty(); i++)
                text += piece;
            in.texts.push_back(text);
        }
    }
    return in;
}

TokenType type_of(const Vocabulary &v, size_t id) { return v.types.empty() ? TokenType::normal : v.types[id]; }

bool has(const Vocabulary &v, std::string_view token, TokenType type) {
    for (size_t id = 0; id < v.tokens.size(); id++)
        if (v.tokens[id] == token && type_of(v, id) == type) return true;
    return false;
}

bool has_type(const Vocabulary &v, TokenType type) {
    return std::find(v.types.begin(), v.types.end(), type) != v.types.end();
}

// Whether decoding gives back a text all of whose bytes have tokens. Not where a normalizer rewrites it.
bool keeps_text(const Vocabulary &v, std::string_view text) {
    if (v.model == "gpt2") return true;
    const bool removes = v.remove_extra_spaces.value_or(v.model == "t5");
    // Phi-3's own tokens take white space with them.
    const bool strips =
        has(v, "<|placeholder1|>", TokenType::control) || has(v, "<|placeholder1|>", TokenType::user_defined);
    return (v.model == "llama" || v.model == "gemma4") && !removes && v.charsmap.empty() && !strips &&
           has(v, kSpaceSymbol, TokenType::normal) && text.find(kSpaceSymbol) == std::string_view::npos;
}

std::string with_symbols(std::string_view text, bool prefix) {
    std::string out(prefix && !text.empty() ? kSpaceSymbol : std::string_view{});
    for (const char c : text) out += c == ' ' ? kSpaceSymbol : std::string_view(&c, 1);
    return out;
}

// SentencePiece BPE by hand: of all neighbours that make a piece those of the highest score, the leftmost first. Empty
// where the text has a character that is no piece when all is merged, which is another matter.
std::optional<std::vector<int32_t>> merged_by_hand(const Vocabulary &v, std::string_view normalized) {
    auto piece = [&](std::string_view text) -> int32_t {
        for (size_t id = 0; id < v.tokens.size(); id++)
            if (v.tokens[id] == text && type_of(v, id) == TokenType::normal) return static_cast<int32_t>(id);
        return -1;
    };
    std::vector<std::string> symbols;
    while (!normalized.empty()) {
        const Utf8Step step = utf8_step(normalized);
        if (step.kind != Utf8::valid) return std::nullopt;
        symbols.emplace_back(normalized.substr(0, step.length));
        normalized.remove_prefix(step.length);
    }
    while (true) {
        size_t best = symbols.size();
        float score = 0;
        for (size_t i = 0; i + 1 < symbols.size(); i++) {
            const int32_t id = piece(symbols[i] + symbols[i + 1]);
            if (id < 0 || (best != symbols.size() && v.scores[static_cast<size_t>(id)] <= score)) continue;
            best = i, score = v.scores[static_cast<size_t>(id)];
        }
        if (best == symbols.size()) break;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    std::vector<int32_t> ids;
    for (const std::string &s : symbols) {
        ids.push_back(piece(s));
        if (ids.back() < 0) return std::nullopt;
    }
    return ids;
}

void check_text(const Vocabulary &v, const Tokenizer &t, const std::string &text) {
    size_t without = 0;
    const std::vector<int32_t> ids = t.encode(text, {.add_special = false, .parse_special = false}, &without);
    for (const int32_t id : ids) {
        FUZZ_REQUIRE(id >= 0 && id < t.size(), "id {} of {}", id, t.size());
        FUZZ_REQUIRE(t.type(id) != TokenType::control, "a user's text became the control token {}", id);
        FUZZ_REQUIRE(t.type(id) != TokenType::unused, "a text became the unused token {}", id);
    }
    FUZZ_REQUIRE(ids.size() <= 3 * text.size() + 3, "{} tokens of {} bytes", ids.size(), text.size());
    const std::string decoded = t.decode(ids);
    const bool unknown =
        std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return t.type(id) == TokenType::unknown; });
    FUZZ_REQUIRE(!unknown || without > 0, "an unknown token, and no byte without a token");
    if (without == 0 && keeps_text(v, text)) FUZZ_REQUIRE(decoded == text, "decoding gives another text");
    const Segment segment{text, false};
    size_t again = 0;
    FUZZ_REQUIRE(t.encode(std::span(&segment, 1), &again) == ids && again == without, "as a segment");

    const std::vector<int32_t> whole = t.encode(text);
    const size_t first = t.adds_bos() && (ids.empty() || ids.front() != *t.bos()) ? 1 : 0;
    const size_t last = t.adds_eos() && (whole.size() == first + ids.size() + 1) ? 1 : 0;
    FUZZ_REQUIRE(whole.size() == first + ids.size() + last, "BOS and EOS");
    FUZZ_REQUIRE(std::equal(ids.begin(), ids.end(), whole.begin() + static_cast<ptrdiff_t>(first)), "BOS or EOS");
    if (t.adds_bos()) FUZZ_REQUIRE(!whole.empty() && whole.front() == *t.bos(), "no BOS");
    if (t.adds_eos()) FUZZ_REQUIRE(!whole.empty() && whole.back() == *t.eos(), "no EOS");

    const bool plain = v.model == "llama" && v.charsmap.empty() && !v.remove_extra_spaces.value_or(false) &&
                       !has_type(v, TokenType::user_defined);
    if (!plain || text.size() > 100 || v.tokens.size() > 600) return;
    const auto expected = merged_by_hand(v, with_symbols(text, v.add_space_prefix.value_or(true)));
    if (expected) FUZZ_REQUIRE(*expected == ids, "merges");
}

void check_tokenizer(const Vocabulary &v, const Input &in) {
    const auto t = Tokenizer::from(v);
    FUZZ_REQUIRE(static_cast<size_t>(t->size()) == v.tokens.size(), "{} tokens", t->size());
    for (int32_t id = 0; id < t->size(); id++) {
        FUZZ_REQUIRE(t->piece(id, true).size() <= 4 * v.tokens[static_cast<size_t>(id)].size() + 4, "piece {}", id);
        FUZZ_REQUIRE(t->type(id) != TokenType::control || t->piece(id).empty(), "a control token shows");
        static_cast<void>(t->is_end(id));
    }
    for (const int32_t id : {-1, t->size(), std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
        const auto refused = fuzz::refusal_of([&] { t->piece(id); });
        FUZZ_REQUIRE(refused && refused->kind == ErrorKind::usage, "id {}", id);
    }
    for (const std::string &text : in.texts) fuzz::refusal_of([&] { check_text(v, *t, text); });
    const std::vector<int32_t> ids = t->encode(in.segments);
    for (const int32_t id : ids) FUZZ_REQUIRE(id >= 0 && id < t->size(), "id {} of {}", id, t->size());
    const bool any_template =
        std::any_of(in.segments.begin(), in.segments.end(), [](const Segment &s) { return s.is_template; });
    for (const int32_t id : ids)
        FUZZ_REQUIRE(any_template || t->type(id) != TokenType::control, "segments of users name token {}", id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fuzz::Stopwatch stopwatch;
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    const test::Described described = test::describe_gguf(text);
    const fuzz::MemoryFile memory(std::as_bytes(std::span(described.bytes)), described.size);
    const Input in = read_input(text);
    fuzz::refusal_of([&] {
        const gguf::File file = gguf::File::open(memory.path());
        const Vocabulary v = text::vocabulary_from_gguf(file);
        fuzz::start_allocation_meter();
        const auto refused = fuzz::refusal_of([&] { Tokenizer::from(v); });
        FUZZ_REQUIRE(fuzz::peak_allocation() <= (8u << 20) + 64 * described.bytes.size(), "{} bytes of heap for {}",
                     fuzz::peak_allocation(), described.bytes.size());
        if (!refused) check_tokenizer(v, in);
    });
    return 0;
}
