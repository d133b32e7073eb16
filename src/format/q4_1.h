// Q4_1: 32 weights in 20 bytes: d f16 | m f16 | qs 16 B, weight i in the low nibble of byte i, weight 16 + i in the
// high one. value = d*q + m, q in 0..15.
#define q4_1_d 0u, 2u, 2u
#define q4_1_m 2u, 2u, 2u
#define q4_1_qs 4u, 16u, 4u
#define q4_1_fields(F) F(q4_1_d) F(q4_1_m) F(q4_1_qs)

FN f32 q4_1_scale(Src b, u32) { return f16_f32(LD16(b, q4_1_d, 0u)); }

FN f32 q4_1_bias(Src b, u32) { return f16_f32(LD16(b, q4_1_m, 0u)); }

FN u32 q4_1_codes4(Src b, u32, u32 j) { return (LD32(b, q4_1_qs, 4u * (j & 3u)) >> (4u * (j >> 2u))) & 0x0f0f0f0fu; }
