// The shapes, from the models' published configurations.
#include "core/error.h"
#include "measure/synthetic.h"

namespace ridge {
namespace {

// clang-format off
constexpr ModelShape kShapes[] = {
    // name, architecture, pre-tokenizer, layers, embd, ff, heads, kv, head, vocab, context, tied, rope base, eps,
    //     rope factor and original context, experts, used, expert ff
    {"qwen3-0.6b", "qwen3", "qwen2", 28, 1024, 3072, 16, 8, 128, 151936, 40960, true, 1e6f, 1e-6f},
    {"qwen3-4b", "qwen3", "qwen2", 36, 2560, 9728, 32, 8, 128, 151936, 40960, true, 1e6f, 1e-6f},
    {"qwen3-8b", "qwen3", "qwen2", 36, 4096, 12288, 32, 8, 128, 151936, 40960, false, 1e6f, 1e-6f},
    {"qwen3-30b-a3b", "qwen3moe", "qwen2", 48, 2048, 6144, 32, 4, 128, 151936, 40960, false, 1e6f, 1e-6f, 0, 0,
     128, 8, 768},
    {"qwen2.5-0.5b", "qwen2", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1e6f, 1e-6f},
    {"qwen2.5-7b", "qwen2", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, false, 1e6f, 1e-6f},
    {"llama-1b", "llama", "llama-bpe", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 5e5f, 1e-5f, 32, 8192},
    {"llama-8b", "llama", "llama-bpe", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 5e5f, 1e-5f, 8, 8192},
    {"smollm2-135m", "llama", "smollm", 30, 576, 1536, 9, 3, 64, 49152, 8192, true, 1e5f, 1e-5f},
    {"tiny-llama", "llama", "smollm", 3, 256, 512, 4, 2, 64, 300, 1024, true, 1e4f, 1e-5f, 8, 64},
    {"tiny-qwen2", "qwen2", "qwen2", 2, 256, 512, 4, 1, 64, 300, 1024, false, 1e6f, 1e-6f},
    {"tiny-qwen3", "qwen3", "qwen2", 3, 256, 768, 8, 2, 64, 300, 1024, false, 1e6f, 1e-6f},
    {"tiny-qwen3moe", "qwen3moe", "qwen2", 2, 256, 512, 4, 2, 128, 300, 1024, false, 1e6f, 1e-6f, 0, 0, 12, 3, 256},
};
// clang-format on

}  // namespace

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
