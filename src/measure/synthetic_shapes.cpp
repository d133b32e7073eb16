// The shapes, from the models' published configurations.
#include "core/error.h"
#include "measure/synthetic.h"

namespace ridge {
namespace {

using enum ModelFeatures::Stretch;

// clang-format off
constexpr ModelShape kShapes[] = {
    // name, architecture, pre-tokenizer, layers, embd, ff, heads, kv, head, vocab, context, tied, rope base, eps,
    //     features: .rope = {stretch, factor, original context, rotated elements, log multiplier},
    //               .window = {size, period, where the file lists the layers}, .scales = {embedding, residual, attention,
    //               logits}
    //     experts, used, expert ff, shared ff
    {"qwen3-0.6b", "qwen3", "qwen2", 28, 1024, 3072, 16, 8, 128, 151936, 40960, true, 1e6f, 1e-6f},
    {"qwen3-4b", "qwen3", "qwen2", 36, 2560, 9728, 32, 8, 128, 151936, 40960, true, 1e6f, 1e-6f},
    {"qwen3-8b", "qwen3", "qwen2", 36, 4096, 12288, 32, 8, 128, 151936, 40960, false, 1e6f, 1e-6f},
    {"qwen3-30b-a3b", "qwen3moe", "qwen2", 48, 2048, 6144, 32, 4, 128, 151936, 40960, false, 1e6f, 1e-6f,
     {}, 128, 8, 768},
    {"qwen2.5-0.5b", "qwen2", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1e6f, 1e-6f},
    {"qwen2.5-7b", "qwen2", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, false, 1e6f, 1e-6f},
    {"qwen1.5-moe-a2.7b", "qwen2moe", "qwen2", 24, 2048, 5632, 16, 16, 128, 151936, 8192, false, 1e6f, 1e-6f,
     {}, 60, 4, 1408, 5632},
    {"llama-1b", "llama", "llama-bpe", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 5e5f, 1e-5f,
     {.rope = {llama3, 32, 8192}}},
    {"llama-8b", "llama", "llama-bpe", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 5e5f, 1e-5f,
     {.rope = {llama3, 8, 8192}}},
    {"smollm2-135m", "llama", "smollm", 30, 576, 1536, 9, 3, 64, 49152, 8192, true, 1e5f, 1e-5f},
    {"mistral-7b", "llama", "gpt-2", 32, 4096, 14336, 32, 8, 128, 32768, 32768, false, 1e6f, 1e-5f},
    {"mixtral-8x7b", "llama", "gpt-2", 32, 4096, 14336, 32, 8, 128, 32000, 32768, false, 1e6f, 1e-5f,
     {}, 8, 2, 14336},
    {"ministral3-3b", "mistral3", "tekken", 26, 3072, 9216, 32, 8, 128, 131072, 262144, true, 1e6f, 1e-5f,
     {.rope = {yarn, 16, 16384, 0, 1}, .temperature = 0.1f}},
    {"gemma2-2b", "gemma2", "gpt-2", 26, 2304, 9216, 8, 4, 256, 256000, 8192, true, 1e4f, 1e-6f,
     {.window = {4096}, .caps = {50, 30}}},
    {"gemma3-270m", "gemma3", "gpt-2", 18, 640, 2048, 4, 1, 256, 262144, 32768, true, 1e6f, 1e-6f, {.window = {512}}},
    {"gemma3-1b", "gemma3", "gpt-2", 26, 1152, 6912, 4, 1, 256, 262144, 32768, true, 1e6f, 1e-6f, {.window = {512}}},
    {"gemma3-4b", "gemma3", "gpt-2", 34, 2560, 10240, 8, 4, 256, 262144, 131072, true, 1e6f, 1e-6f,
     {.rope = {linear, 8}, .window = {1024}}},
    {"phi3-mini", "phi3", "gpt-2", 32, 3072, 8192, 32, 32, 96, 32064, 4096, false, 1e4f, 1e-5f, {.window = {2047}}},
    {"phi4-mini", "phi3", "gpt-4o", 32, 3072, 8192, 24, 8, 128, 200064, 131072, true, 1e4f, 1e-5f,
     {.rope = {longrope, 32, 4096, 96}, .window = {262144}}},
    {"phi4", "phi3", "dbrx", 40, 5120, 17920, 40, 10, 128, 100352, 16384, false, 2.5e5f, 1e-5f},
    {"olmo2-7b", "olmo2", "dbrx", 32, 4096, 11008, 32, 32, 128, 100352, 4096, false, 5e5f, 1e-6f},
    {"granite-3.3-2b", "granite", "refact", 40, 2048, 8192, 32, 8, 64, 49159, 131072, true, 1e7f, 1e-5f,
     {.scales = {12, 0.22f, 0.015625f, 8}}},
    {"granite-3.3-8b", "granite", "refact", 40, 4096, 12800, 32, 8, 128, 49159, 131072, true, 1e7f, 1e-5f,
     {.scales = {12, 0.22f, 0.0078125f, 16}}},
    {"gpt-oss-20b", "gpt-oss", "gpt-4o", 24, 2880, 2880, 64, 8, 64, 201088, 131072, false, 1.5e5f, 1e-5f,
     {.rope = {yarn, 32, 4096}, .window = {128}}, 32, 4, 2880},

    // Windows are shorter and contexts longer than a few tokens; caps and scales bite.
    {"tiny-llama", "llama", "smollm", 3, 256, 512, 4, 2, 64, 300, 1024, true, 1e4f, 1e-5f, {.rope = {llama3, 8, 64}}},
    {"tiny-mistral", "llama", "smollm", 2, 256, 512, 4, 2, 64, 300, 1024, false, 1e4f, 1e-5f, {.window = {8}}},
    {"tiny-mixtral", "llama", "smollm", 2, 256, 256, 4, 2, 64, 300, 1024, false, 1e6f, 1e-5f, {}, 8, 2, 256},
    {"tiny-mistral3", "mistral3", "tekken", 2, 256, 512, 4, 2, 64, 300, 1024, true, 1e6f, 1e-5f,
     {.rope = {yarn, 16, 8, 0, 1}, .temperature = 0.2f}},
    {"tiny-qwen2", "qwen2", "qwen2", 2, 256, 512, 4, 1, 64, 300, 1024, false, 1e6f, 1e-6f},
    {"tiny-qwen3", "qwen3", "qwen2", 3, 256, 768, 8, 2, 64, 300, 1024, false, 1e6f, 1e-6f},
    {"tiny-qwen2moe", "qwen2moe", "qwen2", 2, 256, 512, 4, 4, 64, 300, 1024, false, 1e6f, 1e-6f, {}, 6, 2, 256, 512},
    {"tiny-qwen3moe", "qwen3moe", "qwen2", 2, 256, 512, 4, 2, 128, 300, 1024, false, 1e6f, 1e-6f, {}, 12, 3, 256},
    {"tiny-gemma2", "gemma2", "gpt-2", 2, 256, 512, 4, 2, 128, 300, 1024, true, 1e4f, 1e-6f,
     {.window = {8}, .caps = {2, 6}}},
    {"tiny-gemma3", "gemma3", "gpt-2", 6, 256, 512, 4, 1, 64, 300, 1024, true, 1e6f, 1e-6f,
     {.rope = {linear, 8}, .window = {8}}},
    {"tiny-phi3", "phi3", "gpt-4o", 2, 256, 512, 4, 2, 64, 300, 1024, true, 1e4f, 1e-5f,
     {.rope = {longrope, 32, 32, 48}, .window = {12}}},
    {"tiny-olmo2", "olmo2", "dbrx", 2, 256, 512, 4, 4, 64, 300, 1024, false, 5e5f, 1e-6f},
    {"tiny-olmo3", "olmo2", "dbrx", 4, 256, 512, 4, 2, 64, 300, 1024, false, 5e5f, 1e-6f,
     {.rope = {yarn, 8, 16}, .window = {8, 4}}},
    {"tiny-granite", "granite", "refact", 3, 256, 512, 4, 2, 64, 300, 1024, true, 1e7f, 1e-5f,
     {.scales = {0.125f, 0.6f, 0.1f, 4}}},
    {"tiny-gpt-oss", "gpt-oss", "gpt-4o", 2, 256, 256, 8, 2, 64, 300, 1024, false, 1.5e5f, 1e-5f,
     {.rope = {yarn, 32, 16}, .window = {8}}, 6, 2, 256},
};
// clang-format on

constexpr unsigned bit(Part p) { return 1u << static_cast<unsigned>(p); }
constexpr unsigned kBefore = bit(Part::norms_before), kAfter = bit(Part::norms_after);
constexpr struct {
    std::string_view architecture;
    unsigned parts;
} kParts[] = {
    {"gemma2", kBefore | kAfter},
    {"gemma3", kBefore | kAfter | bit(Part::head_norms)},
    {"gpt-oss", kBefore | bit(Part::qkv_bias) | bit(Part::all_biases) | bit(Part::sinks)},
    {"granite", kBefore},
    {"llama", kBefore},
    {"mistral3", kBefore},
    {"olmo2", kAfter | bit(Part::row_norms)},
    {"phi3", kBefore | bit(Part::fused)},
    {"qwen2", kBefore | bit(Part::qkv_bias)},
    {"qwen2moe", kBefore | bit(Part::qkv_bias) | bit(Part::shared_expert)},
    {"qwen3", kBefore | bit(Part::head_norms)},
    {"qwen3moe", kBefore | bit(Part::head_norms)},
};

}  // namespace

bool ModelShape::has(Part p) const {
    for (const auto &row : kParts)
        if (row.architecture == architecture) return (row.parts & bit(p)) != 0;
    RIDGE_ASSERT(!"every architecture has a row");
    return false;
}

std::span<const ModelShape> synthetic_shapes() { return kShapes; }

const ModelShape &synthetic_shape(std::string_view name) {
    std::vector<std::string_view> names;
    for (const ModelShape &s : kShapes) {
        if (s.name == name) return s;
        names.push_back(s.name);
    }
    fail(ErrorKind::usage, "no synthetic model is called '{}'; there are {}", name, fmt::join(names, ", "));
}

}  // namespace ridge
