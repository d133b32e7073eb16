// Synthetic models: statistics of every format, sizes of the real models, the same bytes by any way.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "core/error.h"
#include "measure/synthetic.h"
#include "measure/synthetic_fill.h"
#include "measure/synthetic_mix.h"
#include "measure/synthetic_vocab.h"
#include "model/model.h"
#include "model/tiny_file.h"
#include "oracle/decode.h"

namespace ridge {
namespace {

using test::TempFile;
using test::TinyModel;

std::vector<double> decoded(Format f, double mean, double sigma, size_t weights) {
    const Filler fill(f, mean, sigma, stream_key(7, "blk.0.attn_q.weight"));
    std::vector<std::byte> bytes(row_bytes(f, weights));
    fill(0, bytes);
    return oracle::decode(static_cast<uint32_t>(f), reinterpret_cast<const unsigned char *>(bytes.data()), weights);
}

struct Moments {
    double mean = 0, sigma = 0;
    explicit Moments(const std::vector<double> &v) {
        for (double x : v) mean += x;
        mean /= static_cast<double>(v.size());
        for (double x : v) sigma += (x - mean) * (x - mean);
        sigma = std::sqrt(sigma / static_cast<double>(v.size()));
    }
};

TEST(Fill, EveryFormatHasTheMomentsAskedFor) {
    for (const FormatInfo &f : all_formats()) {
        SCOPED_TRACE(f.name);
        // A wide tensor's sigma, and that of a deep model's residual matrices, where f16 scales are subnormal.
        for (double sigma : {1.0, 0.02, 0.001}) {
            const std::vector<double> v = decoded(f.id, 0, sigma, 1 << 17);
            for (double x : v) ASSERT_TRUE(std::isfinite(x));
            const Moments m(v);
            EXPECT_NEAR(m.sigma / sigma, 1, 0.05) << sigma;
            EXPECT_NEAR(m.mean / sigma, 0, 0.02) << sigma;
        }
    }
    const Moments norm(decoded(Format::F32, 1, 0.1, 1 << 16));
    EXPECT_NEAR(norm.mean, 1, 0.002);
    EXPECT_NEAR(norm.sigma, 0.1, 0.002);
}

// Random codes are of use only where they are all there.
TEST(Fill, EveryCodeOccurs) {
    const auto codes = [](Format f) {
        const Filler fill(f, 0, 0.02, 1);
        const FormatInfo &i = info(f);
        std::vector<std::byte> bytes(row_bytes(f, 1 << 16));
        fill(0, bytes);
        std::set<int> seen;
        for (size_t b = 0; b < bytes.size(); b += i.bytes)
            for (unsigned j = 0; j < i.block; j++)
                seen.insert(
                    oracle::element(static_cast<uint32_t>(f), reinterpret_cast<const unsigned char *>(&bytes[b]), j)
                        .code);
        return seen.size();
    };
    EXPECT_EQ(codes(Format::Q4_0), 16u);
    EXPECT_EQ(codes(Format::Q5_1), 32u);
    EXPECT_EQ(codes(Format::Q8_0), 256u);
    EXPECT_EQ(codes(Format::Q2_K), 4u);
    EXPECT_EQ(codes(Format::Q3_K), 8u);
    EXPECT_EQ(codes(Format::Q6_K), 64u);
    EXPECT_EQ(codes(Format::IQ4_XS), 16u);
    EXPECT_EQ(codes(Format::MXFP4), 15u);  // both zeros are one
    EXPECT_EQ(codes(Format::TQ1_0), 3u);
    EXPECT_EQ(codes(Format::TQ2_0), 3u);  // the fourth is no ternary weight
}

TEST(Fill, PiecesAreThoseOfTheWhole) {
    for (const FormatInfo &f : all_formats()) {
        const Filler fill(f.id, 0, 0.02, 3);
        std::vector<std::byte> whole(row_bytes(f.id, 256 * 37)), parts(whole.size());
        fill(0, whole);
        const size_t piece = row_bytes(f.id, 256 * 5);
        for (size_t at = whole.size() / piece * piece;; at -= piece) {  // last piece first
            fill(at, std::span(parts).subspan(at, std::min(piece, whole.size() - at)));
            if (at == 0) break;
        }
        EXPECT_EQ(whole, parts) << f.name;
        std::vector<std::byte> other(whole.size());
        Filler(f.id, 0, 0.02, 4)(0, other);
        EXPECT_NE(whole, other) << f.name;
    }
}

std::vector<char> bytes_of(const std::filesystem::path &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Synthetic, BytesDependOnTheSeedAloneNotOnThreads) {
    const auto bytes = [](uint64_t seed, unsigned threads) {
        const TempFile temp(fmt::format("seed{}_{}.gguf", seed, threads));
        write_synthetic(temp.path(), {.like = "tiny-qwen3moe", .quant = "Q4_K_M", .seed = seed, .threads = threads});
        return bytes_of(temp.path());
    };
    const std::vector<char> one = bytes(1, 1);
    ASSERT_GT(one.size(), 1000000u);
    EXPECT_EQ(one, bytes(1, 2));
    EXPECT_EQ(one, bytes(1, 7));
    EXPECT_NE(one, bytes(2, 1));
}

uint64_t elements(const SynthTensor &t) {
    uint64_t n = 1;
    for (uint64_t d : t.shape) n *= d;
    return n;
}

// Published parameter counts; without factors of RoPE. Those of Gemma 3 4B are of its language model, without the rows
// of the table that no token has.
TEST(Synthetic, ShapesHaveTheParametersOfTheirModels) {
    const std::pair<const char *, uint64_t> counts[] = {
        {"qwen3-0.6b", 596049920},      {"qwen3-4b", 4022468096},           {"qwen3-8b", 8190735360},
        {"qwen3-30b-a3b", 30532122624}, {"llama-1b", 1235814400},           {"llama-8b", 8030261248},
        {"qwen2.5-0.5b", 494032768},    {"qwen2.5-7b", 7615616512},         {"smollm2-135m", 134515008},
        {"mistral-7b", 7248023552},     {"mixtral-8x7b", 46702792704},      {"gemma2-2b", 2614341888},
        {"gemma3-270m", 268098176},     {"gemma3-1b", 999885952},           {"gemma3-4b", 3880099328},
        {"phi3-mini", 3821079552},      {"phi4-mini", 3836021760},          {"phi4", 14659507200},
        {"olmo2-7b", 7298617344},       {"granite-3.3-2b", 2533539840},     {"granite-3.3-8b", 8170864640},
        {"gpt-oss-20b", 20914757184},   {"qwen1.5-moe-a2.7b", 14315784192},
    };
    for (const auto &[name, count] : counts) {
        uint64_t n = 0;
        for (const SynthTensor &t : plan_synthetic({.like = name}).tensors)
            if (!t.name.starts_with("rope_")) n += elements(t);
        EXPECT_EQ(n, count) << name;
    }
}

std::map<Format, int> formats(const SynthOptions &options) {
    std::map<Format, int> n;
    for (const SynthTensor &t : plan_synthetic(options).tensors)
        if (t.shape.size() > 1) n[t.format]++;
    return n;
}

// Counts of published files of these models.
TEST(Synthetic, MixesAreThoseOfPublishedFiles) {
    using enum Format;
    using Counts = std::map<Format, int>;
    EXPECT_EQ(formats({.like = "qwen3-8b", .quant = "Q4_K_M"}), (Counts{{Q4_K, 217}, {Q6_K, 37}}));
    EXPECT_EQ(formats({.like = "llama-8b", .quant = "Q4_K_M"}), (Counts{{Q4_K, 193}, {Q6_K, 33}}));
    EXPECT_EQ(formats({.like = "llama-8b", .quant = "Q5_K_M"}), (Counts{{Q5_K, 193}, {Q6_K, 33}}));
    EXPECT_EQ(formats({.like = "llama-8b", .quant = "Q8_0"}), (Counts{{Q8_0, 226}}));
    EXPECT_EQ(formats({.like = "llama-8b", .quant = "Q4_0"}), (Counts{{Q4_0, 225}, {Q6_K, 1}}));
    EXPECT_EQ(formats({.like = "llama-8b", .quant = "Q3_K_M"}),
              (Counts{{Q3_K, 129}, {Q4_K, 92}, {Q5_K, 4}, {Q6_K, 1}}));
    EXPECT_EQ(formats({.like = "qwen3-30b-a3b", .quant = "Q4_K_M"}), (Counts{{F32, 48}, {Q4_K, 289}, {Q6_K, 49}}));
    EXPECT_EQ(formats({.like = "qwen3-30b-a3b", .quant = "mxfp4_moe"}), (Counts{{F32, 48}, {Q8_0, 194}, {MXFP4, 144}}));
    EXPECT_EQ(formats({.like = "llama-1b", .quant = "F16"}), (Counts{{F16, 113}}));
    EXPECT_EQ(formats({.like = "phi3-mini", .quant = "Q4_K_M"}), (Counts{{Q4_K, 81}, {Q5_K, 32}, {Q6_K, 17}}));
    // 289 tensors in F32, of which these have two dimensions: routers, and biases of experts.
    EXPECT_EQ(formats({.like = "gpt-oss-20b", .quant = "MXFP4_MOE"}), (Counts{{F32, 96}, {Q8_0, 98}, {MXFP4, 72}}));
    EXPECT_EQ(plan_synthetic({.like = "gpt-oss-20b", .quant = "MXFP4_MOE"}).tensors.size(), 459u);
}

// With eight experts attention is small beside them, and gets more bits.
TEST(Synthetic, EightExpertsSpareAttention) {
    using enum Format;
    const auto of = [](const char *quant, std::string_view name) {
        for (const SynthTensor &t : plan_synthetic({.like = "mixtral-8x7b", .quant = quant}).tensors)
            if (t.name == name) return t.format;
        throw std::logic_error("no such tensor");
    };
    for (const char *quant : {"Q4_K_M", "Q5_K_M", "Q3_K_S", "Q4_0"}) {
        EXPECT_EQ(of(quant, "blk.7.attn_k.weight"), Q8_0) << quant;
        EXPECT_EQ(of(quant, "blk.7.attn_v.weight"), Q8_0) << quant;
    }
    EXPECT_EQ(of("Q4_K_M", "blk.7.attn_output.weight"), Q5_K);
    EXPECT_EQ(of("Q5_K_M", "blk.7.attn_output.weight"), Q5_K);
    EXPECT_EQ(of("Q4_0", "blk.7.attn_output.weight"), Q4_0);
    EXPECT_EQ(of("Q6_K", "blk.7.attn_output.weight"), Q6_K);
    EXPECT_EQ(of("IQ2_XS", "blk.7.attn_k.weight"), Q4_K);
    EXPECT_EQ(of("IQ2_XS", "blk.7.attn_output.weight"), Q5_K);
    EXPECT_EQ(of("Q4_K_M", "blk.7.attn_q.weight"), Q4_K);
    EXPECT_EQ(of("F16", "blk.7.attn_v.weight"), F16);
    EXPECT_EQ(of("Q4_K_M", "blk.7.ffn_gate_inp.weight"), F32);
}

TEST(Synthetic, RowsThatDoNotFitFallBack) {
    const SynthPlan plan = plan_synthetic({.like = "smollm2-135m", .quant = "Q4_K_M"});
    EXPECT_EQ(plan.notes.size(), 180u);
    EXPECT_EQ(plan.notes.front(), "blk.0.attn_q.weight: 576 is no multiple of 256: Q5_0 instead of Q4_K");
    EXPECT_EQ(fitting_format(Format::Q6_K, 896), Format::Q8_0);
    EXPECT_EQ(fitting_format(Format::IQ2_XS, 896), Format::IQ4_NL);
    EXPECT_EQ(fitting_format(Format::Q2_K, 896), Format::Q4_0);
    EXPECT_EQ(fitting_format(Format::Q5_K, 896), Format::Q5_1);
    EXPECT_EQ(fitting_format(Format::Q4_K, 40), Format::F16);
    EXPECT_EQ(fitting_format(Format::Q4_0, 40), Format::F16);
    EXPECT_EQ(fitting_format(Format::Q4_K, 512), Format::Q4_K);
}

TEST(Synthetic, OverridesDecideFirst) {
    const SynthPlan plan =
        plan_synthetic({.like = "tiny-qwen3moe",
                        .quant = "Q8_0",
                        .overrides = {{"blk\\.1\\.ffn_down", Format::Q2_K}, {"ffn_", Format::IQ1_S}}});
    for (const SynthTensor &t : plan.tensors) {
        if (t.shape.size() == 1)
            EXPECT_EQ(t.format, Format::F32) << t.name;
        else if (t.name == "blk.1.ffn_down_exps.weight")
            EXPECT_EQ(t.format, Format::Q2_K);
        else
            EXPECT_EQ(t.format, t.name.find("ffn_") != std::string::npos ? Format::IQ1_S : Format::Q8_0) << t.name;
    }
}

TEST(Synthetic, BadRequestsAreNamed) {
    const std::pair<SynthOptions, std::string> bad[] = {
        {{.like = "gpt-9"}, "qwen3-30b-a3b"},
        {{.quant = "Q9_X"}, "Q4_K_M"},
        {{.quant = "MXFP4"}, "--pure"},
        {{.quant = "Q4_K_M", .pure = true}, "Q4_K_M"},
        {{.overrides = {{"ffn_dwn", Format::Q8_0}}}, "ffn_dwn"},
        {{.overrides = {{"attn_norm", Format::Q8_0}}}, "attn_norm"},
        {{.overrides = {{"(", Format::Q8_0}}}, "regular expression"},
        {{.like = "smollm2-135m", .overrides = {{"attn_q", Format::Q4_K}}}, "576"},
    };
    for (const auto &[options, says] : bad) try {
            plan_synthetic(options);
            ADD_FAILURE() << says;
        } catch (const Error &e) {
            EXPECT_EQ(e.kind(), ErrorKind::usage);
            EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
        }
}

TEST(Synthetic, OverwritesOnlyWhereAsked) {
    const TempFile temp("kept.gguf");
    std::ofstream(temp.path()) << "mine";
    SynthOptions options{.like = "tiny-llama"};
    EXPECT_THROW(write_synthetic(temp.path(), options), Error);
    EXPECT_EQ(bytes_of(temp.path()).size(), 4u);
    options.force = true;
    write_synthetic(temp.path(), options);
    EXPECT_GT(bytes_of(temp.path()).size(), 100000u);
}

TEST(Synthetic, AnInterruptLeavesNothing) {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("ridge_{}_cut", ::getpid());
    std::filesystem::create_directory(folder);
    SynthOptions options{.like = "tiny-llama", .quant = "F32"};
    options.progress = [](uint64_t, uint64_t) { throw std::runtime_error("stop"); };
    EXPECT_THROW(write_synthetic(folder / "cut.gguf", options), std::runtime_error);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    std::filesystem::remove_all(folder);
}

TEST(Vocabulary, IsValidAtAnySize) {
    for (uint32_t size : {259u, 300u, 49152u, 152064u}) {
        const SyntheticVocab v = synthetic_vocab(size);
        ASSERT_EQ(v.tokens.size(), size);
        ASSERT_EQ(v.types.size(), size);
        EXPECT_EQ(v.merges.size(), size - 259);
        EXPECT_EQ(std::set<std::string>(v.tokens.begin(), v.tokens.end()).size(), size) << "tokens differ";
        EXPECT_EQ(v.tokens[v.im_start], "<|im_start|>");
        EXPECT_EQ(v.tokens[v.im_end], "<|im_end|>");
        EXPECT_EQ(v.tokens[v.endoftext], "<|endoftext|>");
        EXPECT_EQ(std::count(v.types.begin(), v.types.end(), 3), 3);
        // Each merge joins two tokens that are there before the one it makes.
        std::set<std::string> known(v.tokens.begin(), v.tokens.begin() + 256);
        EXPECT_EQ(known.size(), 256u);
        for (size_t i = 0; i < v.merges.size(); i++) {
            const size_t gap = v.merges[i].find(' ');
            ASSERT_TRUE(known.contains(v.merges[i].substr(0, gap)) && known.contains(v.merges[i].substr(gap + 1)));
            ASSERT_EQ(v.merges[i].substr(0, gap) + v.merges[i].substr(gap + 1), v.tokens[256 + i]);
            known.insert(v.tokens[256 + i]);
        }
    }
}

TEST(Synthetic, FilesSayWhatTheyAre) {
    const TinyModel model({.like = "tiny-qwen3moe", .quant = "Q4_K_M", .seed = 12});
    EXPECT_EQ(model.file.get_u64("general.file_type"), 15u);
    EXPECT_EQ(model.file.get_u64("general.quantization_version"), 2u);
    EXPECT_EQ(model.file.get_string("general.name"), "synthetic tiny-qwen3moe Q4_K_M");
    EXPECT_NE(model.file.get_string("general.description").find("seed 12"), std::string_view::npos);
    EXPECT_EQ(model.file.get_u64("tokenizer.ggml.eos_token_id"), 299u);
    EXPECT_EQ(model.file.tensors().size(), model.plan.tensors.size());
}

// Every architecture that runs has a shape to gate it on.
TEST(Synthetic, EveryArchitectureHasATinyShape) {
    std::set<std::string_view> shaped;
    for (const ModelShape &s : synthetic_shapes())
        if (s.name.starts_with("tiny-")) shaped.insert(s.architecture);
    for (const Architecture &a : architectures()) EXPECT_TRUE(shaped.contains(a.name)) << a.name;
}

}  // namespace
}  // namespace ridge
