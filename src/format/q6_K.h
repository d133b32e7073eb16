// Q6_K: 256 weights in 210 bytes: ql 128 B, bits 0..3 | qh 64 B, bits 4..5 | scales 16 signed bytes | d f16.
// Each half of 128 weights has 64 bytes of ql (weight i in the low nibble of byte i, weight 64 + i in the high one)
// and 32 of qh (byte i holds weights i, 32 + i, 64 + i, 96 + i, lowest bits first).
// value = d*sc*(q - 32), one sc per 16 weights, q in 0..63.
#define q6_K_ql 0u, 128u, 2u
#define q6_K_qh 128u, 64u, 2u
#define q6_K_scales 192u, 16u, 2u
#define q6_K_d 208u, 2u, 2u
#define q6_K_fields(F) F(q6_K_ql) F(q6_K_qh) F(q6_K_scales) F(q6_K_d)

FN f32 q6_K_scale(Src b, u32 g) { return f16_f32(LD16(b, q6_K_d, 0u)) * f32(signed8(LD8(b, q6_K_scales, g))); }

FN u32 q6_K_codes4(Src b, u32 g32, u32 j) {
    u32 low = LD32(b, q6_K_ql, 64u * (g32 >> 2u) + 32u * (g32 & 1u) + 4u * j) >> (4u * ((g32 >> 1u) & 1u));
    u32 high = LD32(b, q6_K_qh, 32u * (g32 >> 2u) + 4u * j) >> (2u * (g32 & 3u));
    return minus4((low & 0x0f0f0f0fu) | ((high & 0x03030303u) << 4u), 0x20202020u);
}
