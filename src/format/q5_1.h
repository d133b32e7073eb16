// Q5_1: 32 weights in 24 bytes: d f16 | m f16 | qh 4 B, bit i is bit 4 of weight i | qs 16 B, bits 0..3: weight i in
// the low nibble of byte i, weight 16 + i in the high one. value = d*q + m, q in 0..31.
#define q5_1_d 0u, 2u, 2u
#define q5_1_m 2u, 2u, 2u
#define q5_1_qh 4u, 4u, 4u
#define q5_1_qs 8u, 16u, 4u
#define q5_1_fields(F) F(q5_1_d) F(q5_1_m) F(q5_1_qh) F(q5_1_qs)

FN f32 q5_1_scale(Src b, u32) { return f16_f32(LD16(b, q5_1_d, 0u)); }

FN f32 q5_1_bias(Src b, u32) { return f16_f32(LD16(b, q5_1_m, 0u)); }

FN u32 q5_1_codes4(Src b, u32, u32 j) {
    u32 low = LD32(b, q5_1_qs, 4u * (j & 3u)) >> (4u * (j >> 2u));
    u32 high = spread4(LD32(b, q5_1_qh, 0u) >> (4u * j));
    return (low & 0x0f0f0f0fu) | (high << 4u);
}
