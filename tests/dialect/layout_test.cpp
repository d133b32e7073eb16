// One decoder for every layout: blocks taken apart into field planes give the same bits as blocks in file order.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "format/decode.h"

namespace ridge {
namespace planes {

using namespace dialect;

// A tensor of n blocks as one plane per field: first all of the first field, block by block, then all of the next.
struct Src {
    const std::byte *planes;
    u32 n, index;
};

// A load below checks what the headers promise: it stays in its field, and is aligned as the field says.
template <class Word>
u32 load(Src b, u32 offset, u32 bytes, u32 align, u32 i) {
    const size_t at = size_t{offset} * b.n + size_t{b.index} * bytes + i;
    EXPECT_LE(i + sizeof(Word), bytes);
    EXPECT_EQ(at % std::min<size_t>(align, sizeof(Word)), 0u);
    Word w;
    std::memcpy(&w, b.planes + at, sizeof w);
    return w;
}
u32 load8(Src b, u32 offset, u32 bytes, u32 align, u32 i) { return load<uint8_t>(b, offset, bytes, align, i); }
u32 load16(Src b, u32 offset, u32 bytes, u32 align, u32 i) { return load<uint16_t>(b, offset, bytes, align, i); }
u32 load32(Src b, u32 offset, u32 bytes, u32 align, u32 i) { return load<uint32_t>(b, offset, bytes, align, i); }

#include "format/all.h"

}  // namespace planes

namespace {

constexpr u32 kBlocks = 64;

struct Tensor {
    std::vector<std::byte> file, planes;
};

Tensor random_tensor(Format f) {
    const size_t bytes = info(f).bytes;
    Tensor t{std::vector<std::byte>(kBlocks * bytes), std::vector<std::byte>(kBlocks * bytes)};
    std::mt19937 random(static_cast<unsigned>(f));
    for (std::byte &b : t.file) b = static_cast<std::byte>(random());
    for (const Field &field : fields(f))
        for (size_t block = 0; block < kBlocks; ++block)
            std::memcpy(&t.planes[field.offset * kBlocks + block * field.bytes], &t.file[block * bytes + field.offset],
                        field.bytes);
    return t;
}

// Bits, so that a NaN equals itself.
u32 bits(f32 x) { return dialect::f32_bits(x); }

template <class Scale, class Codes>
void compare(Format f, Scale scale, Codes codes4) {
    const FormatInfo &shape = info(f);
    const Tensor t = random_tensor(f);
    u32 distinct = 0;
    for (u32 block = 0; block < kBlocks; ++block) {
        const std::byte *b = &t.file[size_t{block} * shape.bytes];
        const planes::Src p{t.planes.data(), kBlocks, block};
        for (u32 g = 0; g < shape.block / shape.group; ++g) scale(p, b, g);
        for (u32 g32 = 0; g32 < shape.block / 32; ++g32)
            for (u32 j = 0; j < 8; ++j) {
                const u32 expected = decoder(f).codes4(b, g32, j);
                ASSERT_EQ(codes4(p, g32, j), expected)
                    << shape.name << " block " << block << " g32 " << g32 << " j " << j;
                distinct += expected != decoder(f).codes4(t.file.data(), 0, 0);
            }
    }
    EXPECT_GT(distinct, 0u) << "all codes are the same: this test shows nothing";
}

#define BIAS_0(prefix)
#define BIAS_1(prefix) EXPECT_EQ(bits(planes::prefix##_bias(p, g)), bits(fns.bias(b, g))) << "bias of group " << g;
#define FORMAT(NAME, prefix, id, block, bytes, group, bias_)                                                    \
    TEST(Planes, NAME) {                                                                                        \
        const DecodeFns &fns = decoder(Format::NAME);                                                           \
        compare(                                                                                                \
            Format::NAME,                                                                                       \
            [&](planes::Src p, const std::byte *b, u32 g) {                                                     \
                EXPECT_EQ(bits(planes::prefix##_scale(p, g)), bits(fns.scale(b, g))) << "scale of group " << g; \
                BIAS_##bias_(prefix)                                                                            \
            },                                                                                                  \
            [](planes::Src p, u32 g32, u32 j) { return planes::prefix##_codes4(p, g32, j); });                  \
    }
#define FORMAT_FLOAT(NAME, prefix, id, bytes)                                         \
    TEST(Planes, NAME) {                                                              \
        const Tensor t = random_tensor(Format::NAME);                                 \
        for (u32 i = 0; i < kBlocks; ++i)                                             \
            EXPECT_EQ(bits(planes::prefix##_value({t.planes.data(), kBlocks, i}, 0)), \
                      bits(decoder(Format::NAME).value(t.file.data(), i)));           \
    }
#include "format/formats.def"

// What dialect.h says of fields.
TEST(Fields, FillTheBlockAndDeclareTheAlignmentOfBothLayouts) {
    for (const FormatInfo &f : all_formats()) {
        u32 end = 0;
        for (const Field &field : fields(f.id)) {
            EXPECT_EQ(field.offset, end) << f.name;
            end += field.bytes;
            EXPECT_EQ(field.align, std::gcd(4u, std::gcd(field.offset, std::gcd(field.bytes, f.bytes)))) << f.name;
        }
        EXPECT_EQ(end, f.bytes) << f.name;
    }
}

TEST(Decoders, HaveExactlyTheFunctionsOfTheirFormat) {
    for (const FormatInfo &f : all_formats()) {
        const DecodeFns &fns = decoder(f.id);
        EXPECT_EQ(fns.scale != nullptr, !f.is_float()) << f.name;
        EXPECT_EQ(fns.codes4 != nullptr, !f.is_float()) << f.name;
        EXPECT_EQ(fns.value != nullptr, f.is_float()) << f.name;
        EXPECT_EQ(fns.bias != nullptr, f.has_bias) << f.name;
    }
}

}  // namespace
}  // namespace ridge
