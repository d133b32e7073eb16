// The emulator: what kernels may do works, for both widths of a wave and in any order of threads.
#include "simt/emulator_support.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ridge::simt {
namespace {

struct Shape {
    uint32_t wave;
    uint64_t seed;
};

class EmulatorKernels : public testing::TestWithParam<Shape> {
  protected:
    EmulatorKernels() : e(GetParam().wave) { e.library.configure("order_seed", GetParam().seed); }
    Emulator e;
};

TEST_P(EmulatorKernels, BarrierOfABlock) {
    const Words in = counted(10 * 256);
    const uint64_t a = e.upload(in), b = e.allocate(in.size() * 4);
    ASSERT_EQ(e.launch("emulator_reverse", 10, 256, 1024, e.args(a, b)), 0);
    const Words out = e.download(b, in.size());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i / 256 * 256 + 255 - i % 256]) << i;
}

TEST_P(EmulatorKernels, ShufflesAndBarriersOfAWave) {
    const Words in = counted(7 * 192);
    const uint64_t a = e.upload(in), b = e.allocate(in.size() * 4);
    ASSERT_EQ(e.launch("emulator_rotate", 7, 192, 192 * 4, e.args(a, b)), 0);
    const Words out = e.download(b, in.size());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i / e.wave * e.wave + (i % e.wave + 3) % e.wave]) << i;
}

TEST_P(EmulatorKernels, LastBlockSumsWhatAllStored) {
    const Words in = counted(33 * 256);
    const uint64_t a = e.upload(in), b = e.upload(Words(35, 0));
    for (int again = 0; again < 2; ++again) {
        ASSERT_EQ(e.launch("emulator_sum", 33, 256, 1028, e.args(a, b, 33)), 0);
        const Words out = e.download(b, 35);
        EXPECT_EQ(out[0], 0u);
        EXPECT_EQ(out[1], std::accumulate(in.begin(), in.end(), 0u));
        EXPECT_EQ(out[2], std::accumulate(in.begin(), in.begin() + 256, 0u));
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatorKernels,
                         testing::Values(Shape{32, 0}, Shape{32, 7}, Shape{64, 0}, Shape{64, 11}),
                         [](const testing::TestParamInfo<Shape> &p) {
                             return "Wave" + std::to_string(p.param.wave) + "Seed" + std::to_string(p.param.seed);
                         });

}  // namespace
}  // namespace ridge::simt
