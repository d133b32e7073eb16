// Whole models against the f64 forward pass, and mistakes in a model that this gate must notice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>

#include "gguf/gguf.h"
#include "measure/gate_model.h"
#include "model/model.h"
#include "runtime/tiny_model.h"

namespace ridge {
namespace {

TEST(ModelGate, EveryArchitectureAndLever) {
    const GateReport r = gate_models({.quick = true}, 2);
    std::printf("%s", to_string({{r.total()}}).c_str());
    EXPECT_TRUE(r.ok()) << to_string(r);
    for (const Architecture &a : architectures()) {
        const std::string prefix = fmt::format("model.tiny-{}.", a.name);
        const auto n = std::ranges::count_if(r.rows, [&](const GateRow &row) { return row.name.starts_with(prefix); });
        EXPECT_GE(n, 12) << a.name << " has no tiny shape, so its forward pass is not gated";
    }
}

// A copy of a model with some bytes of one tensor changed.
std::filesystem::path mutant(const std::filesystem::path &from, const test::TempDir &dir, std::string_view tensor,
                             const std::function<void(std::span<std::byte>)> &change) {
    std::ifstream in(from, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const gguf::File f = gguf::File::open(from);
    const gguf::Tensor *t = f.find_tensor(tensor);
    if (!t) throw std::logic_error("no tensor " + std::string(tensor));
    change(std::as_writable_bytes(std::span(bytes)).subspan(t->offset, t->bytes));
    const std::filesystem::path path = dir.path / "mutant.gguf";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
}

// The f32 gate sees one weight of a norm changed by a hundredth, the int8 gate one that is lost.
TEST(ModelGate, MistakesAreNoticed) {
    const test::TempDir dir;
    const LeverSet f32 = LeverSet::defaults().without(Lever::int8_dot);
    for (const char *like : {"tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe"}) {
        const std::filesystem::path file = test::tiny_file(like, "Q4_K_M");
        const ModelOracle oracle(like, file, 1);
        EXPECT_TRUE(oracle.compare(file, f32, DType::f32, 16, 1).ok());
        for (const char *tensor : {"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight"}) {
            const auto scaled = mutant(file, dir, tensor, [](std::span<std::byte> b) {
                float w;
                std::memcpy(&w, &b[40], sizeof w);
                w *= 1.01F;
                std::memcpy(&b[40], &w, sizeof w);
            });
            EXPECT_FALSE(oracle.compare(scaled, f32, DType::f32, 16, 1).ok()) << like << " " << tensor;
        }
        const auto lost = mutant(file, dir, "blk.0.attn_norm.weight",
                                 [](std::span<std::byte> b) { std::memset(b.data(), 0, b.size() / 4); });
        EXPECT_FALSE(oracle.compare(lost, LeverSet::defaults(), DType::f16, 16, 1).ok()) << like;
    }
}

}  // namespace
}  // namespace ridge
