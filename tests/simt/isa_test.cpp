// The instructions that kernels for AMD GPUs are meant to consist of are there: what a compiler makes of arch/ and
// device.h cannot be seen by running them on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "runtime/tiny_model.h"

namespace ridge::simt {
namespace {

constexpr const char *kClang = "clang++-19";

bool has_clang() { return std::system(fmt::format("command -v {} >/dev/null", kClang).c_str()) == 0; }

struct Isa {
    const char *arch;
    const char *dot;     // four products of bytes, in rows for few tokens
    const char *matrix;  // int8 matrices, in rows for many
};
// On gfx9 there is also v_dot4c, which adds to its own result.
constexpr Isa kIsas[] = {{"gfx1151", "v_dot4_i32_iu8", "v_wmma_i32_16x16x16_iu8"},
                         {"gfx1201", "v_dot4_i32_iu8", "v_wmma_i32_16x16x16_iu8"},
                         {"gfx942", "v_dot4", "v_mfma_i32_16x16x32_i8"}};

class HipIsa : public testing::TestWithParam<Isa> {
  protected:
    std::string assembly(const char *file) {
        const auto path = dir_.path / "kernel.s";
        const std::string command = fmt::format(
            "{} -x hip --offload-arch={} --offload-device-only --no-gpu-bundle-output -nogpulib -nogpuinc -std=c++20 "
            "-O3 "
            "-ffp-contract=off -I{}/src -S -o {} {}/src/backend/simt/kernels/{}.cu",
            kClang, GetParam().arch, RIDGE_SOURCE_DIR, path.string(), RIDGE_SOURCE_DIR, file);
        EXPECT_EQ(std::system(command.c_str()), 0) << command;
        std::ostringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }
    size_t count(const std::string &text, const std::string &instruction) {
        size_t n = 0;
        for (size_t at = 0; (at = text.find(instruction, at)) != std::string::npos; at += instruction.size()) n++;
        return n;
    }
    void expect(const char *file, const std::string &instruction) {
        if (!has_clang()) {
            if (std::getenv("RIDGE_REQUIRE_TOOLS") != nullptr) FAIL() << kClang << " is absent";
            GTEST_SKIP() << kClang << " is absent";
        }
        const std::string text = assembly(file);
        const size_t n = count(text, instruction);
        EXPECT_GT(n, 0u) << file << " for " << GetParam().arch << " has no " << instruction;
        fmt::print("{} for {}: {} {}, {} stores of spilled registers\n", file, GetParam().arch, n, instruction,
                   count(text, "scratch_store"));
    }

  private:
    test::TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Of, HipIsa, testing::ValuesIn(kIsas), [](const auto &p) { return p.param.arch; });

TEST_P(HipIsa, DotsOfBytes) { expect("contract_dot_k", GetParam().dot); }
TEST_P(HipIsa, MatrixUnits) { expect("contract_mma", GetParam().matrix); }

}  // namespace
}  // namespace ridge::simt
