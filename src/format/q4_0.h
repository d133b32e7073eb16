// Q4_0: 32 weights in 18 bytes: d f16 | qs 16 B, weight i in the low nibble of byte i, weight 16 + i in the high one.
// value = d*(q - 8), q in 0..15.
#define q4_0_d 0u, 2u, 2u
#define q4_0_qs 2u, 16u, 2u
#define q4_0_fields(F) F(q4_0_d) F(q4_0_qs)

FN f32 q4_0_scale(Src b, u32) { return f16_f32(LD16(b, q4_0_d, 0u)); }

FN u32 q4_0_codes4(Src b, u32, u32 j) {
    u32 q = LD32(b, q4_0_qs, 4u * (j & 3u)) >> (4u * (j >> 2u));
    return minus4(q & 0x0f0f0f0fu, 0x08080808u);
}
