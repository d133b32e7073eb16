// Q8_0: 32 weights in 34 bytes: d f16 | qs 32 signed bytes. value = d*q.
#define q8_0_d 0u, 2u, 2u
#define q8_0_qs 2u, 32u, 2u
#define q8_0_fields(F) F(q8_0_d) F(q8_0_qs)

FN f32 q8_0_scale(Src b, u32) { return f16_f32(LD16(b, q8_0_d, 0u)); }

FN u32 q8_0_codes4(Src b, u32, u32 j) { return LD32(b, q8_0_qs, 4u * j); }
