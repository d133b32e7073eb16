// Calls every function of every format header once, as GLSL (test_compile.cpp runs the compilers). See cover.cu.
//
// With PLANES the shader brings its own Src: blocks taken apart into field planes, in one buffer.
#version 450
#extension GL_GOOGLE_include_directive : require
#define RIDGE_GLSL

#ifdef PLANES
#define RIDGE_OWN_SRC
struct Src {
    uint blocks;  // blocks in the tensor
    uint index;   // this block
};
layout(std430, set = 0, binding = 0) readonly buffer Weights { uint words[]; };
uint load8(Src b, uint offset, uint bytes, uint align, uint i) {
    uint a = offset * b.blocks + b.index * bytes + i;
    return (words[a >> 2] >> (8u * (a & 3u))) & 255u;
}
uint load16(Src b, uint offset, uint bytes, uint align, uint i) {
    return load8(b, offset, bytes, align, i) | (load8(b, offset, bytes, align, i + 1u) << 8);
}
uint load32(Src b, uint offset, uint bytes, uint align, uint i) {
    return load16(b, offset, bytes, align, i) | (load16(b, offset, bytes, align, i + 2u) << 16);
}
#define BLOCK(index, bytes) Src(4096u, index)
#else
#define RIDGE_WEIGHT_SLOTS 3
layout(push_constant) uniform Arguments { uint slot; };
#define BLOCK(index, bytes) Src(slot, (index) * uint(bytes))
#endif

#include "format/dialect.h"
#include "format/all.h"

layout(local_size_x = 32) in;
layout(std430, set = 0, binding = 2) writeonly buffer Out { uint result[]; };

#define BIAS_0(prefix, b, g)
#define BIAS_1(prefix, b, g) sum += f32_bits(prefix##_bias(b, g));
#define FORMAT(NAME, prefix, id, block, bytes, group, bias)         \
    {                                                               \
        Src b = BLOCK(i, bytes);                                    \
        uint g = i % (uint(block) / uint(group));                   \
        sum += f32_bits(prefix##_scale(b, g));                      \
        BIAS_##bias(prefix, b, g)                                   \
        sum += prefix##_codes4(b, i % (uint(block) / 32u), i & 7u); \
    }
#define FORMAT_FLOAT(NAME, prefix, id, bytes) sum += f32_bits(prefix##_value(BLOCK(i, bytes), 0u));

void main() {
    uint i = gl_GlobalInvocationID.x;
    uint sum = 0u;
#include "format/formats.def"
#ifdef PLANT
    sum += q4_K_no_such_function(BLOCK(i, 144), i);
#endif
    result[i] = sum;
}
