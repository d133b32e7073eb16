// Q5_0: 32 weights in 22 bytes: d f16 | qh 4 B, bit i is bit 4 of weight i | qs 16 B, bits 0..3: weight i in the low
// nibble of byte i, weight 16 + i in the high one. value = d*(q - 16), q in 0..31.
#define q5_0_d 0u, 2u, 2u
#define q5_0_qh 2u, 4u, 2u
#define q5_0_qs 6u, 16u, 2u
#define q5_0_fields(F) F(q5_0_d) F(q5_0_qh) F(q5_0_qs)

FN f32 q5_0_scale(Src b, u32) { return f16_f32(LD16(b, q5_0_d, 0u)); }

FN u32 q5_0_codes4(Src b, u32, u32 j) {
    u32 low = LD32(b, q5_0_qs, 4u * (j & 3u)) >> (4u * (j >> 2u));
    u32 high = spread4(LD32(b, q5_0_qh, 0u) >> (4u * j));
    return minus4((low & 0x0f0f0f0fu) | (high << 4u), 0x10101010u);
}
