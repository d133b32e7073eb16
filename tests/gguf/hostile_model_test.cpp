// Files that are whole in their structure and wrong in what they say: hyper-parameters that would divide by zero,
// overflow or contradict each other, tensors that do not fit them, vocabularies that do not fit together. Each is the
// valid file of tests/fuzz/corpus/model/llama with one line changed. RIDGE_PRINT_ERRORS=1 prints the table.
#include <gtest/gtest.h>

#include <optional>

#include "model/model.h"
#include "support.h"
#include "support/describe_gguf.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace ridge::gguf::test {
namespace {

const std::filesystem::path kSeeds = std::filesystem::path(RIDGE_SOURCE_DIR) / "tests/fuzz/corpus/model";

std::filesystem::path put(const TempDir &dir, std::string_view text) {
    const ridge::test::Described d = ridge::test::describe_gguf(text);
    const auto path = dir.put("bad.gguf", d.bytes);
    std::filesystem::resize_file(path, d.size);
    return path;
}

// `text` with the line about `name` (its second or third word) replaced by `line`, or with `line` added where there is
// none.
std::string changed(std::string_view text, std::string_view name, std::string_view line) {
    std::string out;
    bool found = false;
    for (const std::string_view old : ridge::test::lines_of(text)) {
        const auto words = ridge::test::words_of(old);
        const bool is_it = std::find(words.begin(), words.end(), name) != words.end();
        found |= is_it;
        out += std::string(is_it ? line : old) + "\n";
    }
    return found ? out : out + std::string(line) + "\n";
}

struct Change {
    std::string what, name, line;
    std::vector<std::string> words;
    ErrorKind kind = ErrorKind::file;
};

void expect_refused(const std::string &seed, const std::vector<Change> &changes,
                    const std::function<void(const File &)> &use) {
    const TempDir dir;
    const std::string base = read_file(kSeeds / seed);
    ASSERT_FALSE(base.empty()) << seed;
    EXPECT_NO_THROW(use(File::open(put(dir, base)))) << seed;
    for (const Change &c : changes) {
        SCOPED_TRACE(c.what);
        const auto path = put(dir, changed(base, c.name, c.line));
        const File file = File::open(path);
        start_allocation_meter();
        const std::string message = error_of([&] { use(file); }, c.kind);
        EXPECT_LE(peak_allocation(), 1u << 20);
        std::vector<std::string> words = c.words;
        words.push_back(path.string() + ": ");
        expect_words(message, words);
        EXPECT_LE(message.size(), path.string().size() + 1500);
        report(c.what, message, dir.path());
    }
}

void build(const File &file) { build_program(file); }
void tokenize(const File &file) { text::Tokenizer::from(text::vocabulary_from_gguf(file))->encode("ab"); }

Change u32(std::string_view key, const std::string &v, std::vector<std::string> words) {
    const std::string full = fmt::format("llama.{}", key);
    words.push_back(full);
    return {fmt::format("{} {}", key, v), full, fmt::format("u32 {} {}", full, v), std::move(words)};
}

Change typed(const std::string &type, std::string_view key, const std::string &v, std::vector<std::string> words) {
    const std::string full = fmt::format("llama.{}", key);
    words.push_back(full);
    return {fmt::format("{} {} as {}", key, v, type), full, fmt::format("{} {} {}", type, full, v), std::move(words)};
}

TEST(HostileModel, EverySeedIsAModel) {
    const TempDir dir;
    size_t seeds = 0;
    for (const auto &entry : std::filesystem::directory_iterator(kSeeds)) {
        SCOPED_TRACE(entry.path());
        EXPECT_NO_THROW(build(File::open(put(dir, read_file(entry.path())))));
        seeds++;
    }
    EXPECT_GE(seeds, 4u);
}

TEST(HostileModel, Sizes) {
    expect_refused("llama",
                   {
                       u32("block_count", "0", {"0", "1 to"}),
                       u32("block_count", "4294967295", {"4294967295"}),
                       {"one layer too many",
                        "llama.block_count",
                        "u32 llama.block_count 2",
                        {"blk.1.attn_norm.weight", "missing"}},
                       typed("i32", "block_count", "-1", {"-1", "i32"}),
                       typed("u64", "block_count", "4294967297", {"4294967297"}),
                       typed("i64", "block_count", "-9223372036854775808", {"-9223372036854775808"}),
                       typed("str", "block_count", "1", {"string"}),
                       typed("f32", "block_count", "1", {"f32"}),
                       typed("bool[]", "block_count", "", {"array of bool"}),
                       u32("embedding_length", "0", {"0"}),
                       u32("embedding_length", "2147483648", {"2147483648"}),
                       u32("feed_forward_length", "0", {"0"}),
                       u32("context_length", "0", {"0"}),
                       u32("context_length", "4294967295", {"4294967295"}),
                       u32("attention.head_count", "0", {"0"}),
                       u32("attention.head_count", "3", {"3", "does not divide", "llama.embedding_length"}),
                       u32("attention.head_count", "4294967295", {"4294967295"}),
                       u32("attention.head_count_kv", "0", {"0"}),
                       u32("attention.head_count_kv", "4", {"does not divide"}),
                       typed("u32[]", "attention.head_count_kv", "", {"array of u32"}),
                       typed("str[]", "attention.head_count_kv", "1", {"array of string"}),
                       u32("attention.key_length", "0", {"0", "from 2"}),
                       u32("attention.key_length", "2147483648", {"2147483648"}),
                       u32("attention.key_length", "3", {"even"}),
                       u32("rope.dimension_count", "0", {"0"}),
                       u32("rope.dimension_count", "6", {"6", "to 4"}),
                       u32("rope.dimension_count", "3", {"odd"}),
                   },
                   build);
}

TEST(HostileModel, Numbers) {
    expect_refused("llama",
                   {
                       typed("f32", "rope.freq_base", "0", {"0"}),
                       typed("f32", "rope.freq_base", "-10000", {"-10000"}),
                       typed("f32", "rope.freq_base", "inf", {"inf"}),
                       typed("f64", "rope.freq_base", "nan", {"nan"}),
                       typed("str", "rope.freq_base", "10000", {"string"}),
                       typed("f32", "attention.layer_norm_rms_epsilon", "0", {"0"}),
                       typed("f32", "attention.layer_norm_rms_epsilon", "nan", {"nan"}),
                       typed("f32", "rope.scaling.factor", "-4", {"-4"}),
                       typed("f32", "rope.scale_linear", "-2", {"-2"}),
                   },
                   build);
}

TEST(HostileModel, Tensors) {
    expect_refused("llama",
                   {
                       {"fewer rows than tokens",
                        "token_embd.weight",
                        "tensor 0 token_embd.weight 8 3",
                        {"token_embd.weight", "{8, 3}", "{8, 4}"}},
                       {"more rows than tokens", "token_embd.weight", "tensor 0 token_embd.weight 8 5", {"{8, 5}"}},
                       {"no embeddings", "token_embd.weight", "", {"token_embd.weight", "missing"}},
                       {"an output of another width",
                        "output.weight",
                        "tensor 0 output.weight 16 4",
                        {"output.weight", "{16, 4}"}},
                       {"a norm that is too short",
                        "blk.0.attn_norm.weight",
                        "tensor 0 blk.0.attn_norm.weight 7",
                        {"blk.0.attn_norm.weight", "{7}", "{8}"}},
                       {"a norm that is quantised",
                        "output_norm.weight",
                        "tensor 1 output_norm.weight 8",
                        {"output_norm.weight", "F16", "F32"}},
                       {"a matrix of integers",
                        "blk.0.attn_q.weight",
                        "tensor 26 blk.0.attn_q.weight 8 8",
                        {"blk.0.attn_q.weight", "I32", "holds no weights"}},
                       {"a matrix with a third dimension",
                        "blk.0.attn_q.weight",
                        "tensor 0 blk.0.attn_q.weight 8 8 2",
                        {"{8, 8, 2}"}},
                       {"a bias of another length",
                        "blk.0.attn_k.bias",
                        "tensor 0 blk.0.attn_k.bias 8",
                        {"blk.0.attn_k.bias", "{8}", "{4}"}},
                       {"a rotary factor of 0",
                        "rope_freqs.weight",
                        "tensor 0 rope_freqs.weight 2 = 1 0",
                        {"rope_freqs.weight", "element 1"}},
                       {"a rotary factor that is no number",
                        "rope_freqs.weight",
                        "tensor 0 rope_freqs.weight 2 = nan 1",
                        {"rope_freqs.weight", "element 0", "nan"}},
                       {"too many rotary factors",
                        "rope_freqs.weight",
                        "tensor 0 rope_freqs.weight 3 = 1 1 1",
                        {"rope_freqs.weight", "{3}", "{2}"}},
                   },
                   build);
}

TEST(HostileModel, Experts) {
    auto key = [](const std::string &name, const std::string &v, std::vector<std::string> words) {
        const std::string full = "qwen3moe." + name;
        words.push_back(full);
        return Change{fmt::format("{} {}", name, v), full, fmt::format("u32 {} {}", full, v), std::move(words)};
    };
    expect_refused("qwen3moe",
                   {
                       key("expert_count", "0", {"0"}),
                       key("expert_count", "4294967295", {"4294967295"}),
                       key("expert_used_count", "0", {"0"}),
                       key("expert_used_count", "5", {"5", "1 to 4"}),
                       key("expert_feed_forward_length", "0", {"0"}),
                       {"an expert missing",
                        "blk.0.ffn_up_exps.weight",
                        "tensor 0 blk.0.ffn_up_exps.weight 8 4 3",
                        {"blk.0.ffn_up_exps.weight", "{8, 4, 3}", "{8, 4, 4}"}},
                       {"a router for fewer experts",
                        "blk.0.ffn_gate_inp.weight",
                        "tensor 0 blk.0.ffn_gate_inp.weight 8 3",
                        {"blk.0.ffn_gate_inp.weight", "{8, 3}"}},
                   },
                   build);
}

// Lines about `tokenizer.ggml.<key>` of a seed of the tokenizer's harness.
Change change(std::string what, const std::string &type, const std::string &key, const std::string &v,
              std::vector<std::string> words, ErrorKind kind = ErrorKind::file) {
    const std::string full = "tokenizer.ggml." + key;
    return {std::move(what), full, v.empty() ? "" : fmt::format("{} {} {}", type, full, v), std::move(words), kind};
}

TEST(HostileVocabulary, ByteLevel) {
    expect_refused(
        "../tokenizer/byte_level",
        {
            change("no tokenizer", "str", "model", "", {"tokenizer.ggml.model"}),
            change("an unknown tokenizer", "str", "model", "word2vec\\x1b[31m",
                   {"'word2vec\\u001b[31m'", "tokenizer.ggml.model", "gpt2", "--tokenizer"}, ErrorKind::unsupported),
            change("an unknown pre-tokenizer", "str", "pre", "new\\x1b[2J\\xff",
                   {"'new\\u001b[2J\\xff'", "tokenizer.ggml.pre", "--pre"}, ErrorKind::unsupported),
            change("no tokens", "str[]", "tokens", "", {"tokenizer.ggml.tokens"}),
            change("tokens that are numbers", "i32[]", "tokens", "1 2 3", {"tokenizer.ggml.tokens", "strings"}),
            change("a token twice", "str[]", "tokens", "@level ab abc \u0120a <s> <s> ab",
                   {"tokenizer.ggml.tokens[259] and [260]", "'<s>'"}),
            change("types of another length", "i32[]", "token_type", "1*256 1", {"token_type has 257", "has 262"}),
            change("a type of 7", "i32[]", "token_type", "1*256 1 1 1 3 7 1", {"token_type[260] is 7", "1 to 6"}),
            change("types that are text", "str[]", "token_type", "normal", {"token_type", "integers"}),
            change("no merges", "str[]", "merges", "", {"tokenizer.ggml.merges"}),
            change("a merge of an unknown token", "str[]", "merges", "a\\sb zz\\sb", {"merges[1]", "'zzb'"}),
            change("a merge without a space", "str[]", "merges", "ab", {"merges[0]", "'ab'", "two tokens"}),
            change("a merge with two spaces", "str[]", "merges", "a\\sb\\sc", {"merges[0]", "'a b c'"}),
            change("a merge that makes a control token", "str[]", "merges", "<\\ss> s\\s>", {"merges"}),
            change("BOS 2^31", "u32", "bos_token_id", "2147483648", {"bos_token_id is 2147483648", "31 bits"}),
            change("BOS 2^64-1", "u64", "bos_token_id", "-1", {"bos_token_id is 18446744073709551615", "31 bits"}),
            change("BOS -1", "i32", "bos_token_id", "-1", {"bos_token_id", "-1"}),
            change("EOS one beyond the end", "u32", "eos_token_id", "262", {"eos_token_id is 262", "262 entries"}),
            change("BOS as text", "str", "bos_token_id", "<s>", {"bos_token_id", "string"}),
            change("BOS is to be added, but there is none", "u32", "bos_token_id", "",
                   {"BOS", "bos_token_id", "absent"}),
        },
        tokenize);
}

TEST(HostileVocabulary, SentencePiece) {
    // The first of the tokens whose type says that they are bytes.
    auto tokens = [](const std::string &name) {
        return change("a byte token called " + name, "str[]", "tokens",
                      fmt::format("<unk> <s> </s> {} @hex ▁ a b ▁a ab ▁ab c", name),
                      {"tokenizer.ggml.tokens[3]", "'" + name + "'", "byte", "<0x00> to <0xFF>"});
    };
    std::vector<Change> changes;
    for (const char *name : {"<0x-1>", "<0x100>", "<0xZZ>", "<0x1>", "<0x>", "0x41", "z"})
        changes.push_back(tokens(name));
    for (const Change &c : {
             change("no scores", "f32[]", "scores", "", {"tokenizer.ggml.scores", "missing"}),
             change("scores of another length", "f32[]", "scores", "0*3", {"scores has 3", "has 267"}),
             change("a score that is no number", "f32[]", "scores", "0*260 nan 0*6", {"scores[260] is nan"}),
             change("an infinite score", "f32[]", "scores", "0*266 inf", {"scores[266] is inf"}),
             change("scores that are text", "str[]", "scores", "high", {"scores", "array of"}),
             change("no types", "i32[]", "token_type", "", {"tokenizer.ggml.token_type", "missing"}),
             change("an unknown token beyond the end", "u32", "unknown_token_id", "267", {"unknown_token_id", "267"}),
         })
        changes.push_back(c);
    expect_refused("../tokenizer/sentencepiece", changes, tokenize);
}

// A file may call a control token the unknown one; a user's text must not become it all the same.
TEST(HostileVocabulary, AnUnknownTokenThatIsAControlTokenIsNotUsed) {
    const TempDir dir;
    const std::string seed = read_file(kSeeds / "../tokenizer/unigram");
    const std::string key = "tokenizer.ggml.unknown_token_id";
    const File good = File::open(put(dir, seed));
    EXPECT_EQ(text::Tokenizer::from(text::vocabulary_from_gguf(good))->encode("z", {.add_special = false}),
              (std::vector<int32_t>{3, 2}));
    const File bad = File::open(put(dir, changed(seed, key, "u32 " + key + " 0")));
    const auto tokenizer = text::Tokenizer::from(text::vocabulary_from_gguf(bad));
    ASSERT_EQ(tokenizer->type(0), text::TokenType::control);
    size_t without = 0;
    EXPECT_EQ(tokenizer->encode("z", {.add_special = false}, &without), (std::vector<int32_t>{3, 2}));
    EXPECT_EQ(without, 1u);
}

}  // namespace
}  // namespace ridge::gguf::test
