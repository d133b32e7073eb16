// Q2_K: 256 weights in 84 bytes: scales 16 B, low nibble sc, high nibble m, per 16 weights | qs 64 B | d f16 | dmin
// f16. Each half of 128 weights has 32 bytes of qs: byte i holds weights i, 32 + i, 64 + i, 96 + i, lowest bits first.
// value = d*sc*q - dmin*m, q in 0..3.
#define q2_K_scales 0u, 16u, 4u
#define q2_K_qs 16u, 64u, 4u
#define q2_K_d 80u, 2u, 2u
#define q2_K_dmin 82u, 2u, 2u
#define q2_K_fields(F) F(q2_K_scales) F(q2_K_qs) F(q2_K_d) F(q2_K_dmin)

FN f32 q2_K_scale(Src b, u32 g) { return f16_f32(LD16(b, q2_K_d, 0u)) * f32(LD8(b, q2_K_scales, g) & 15u); }

FN f32 q2_K_bias(Src b, u32 g) { return -(f16_f32(LD16(b, q2_K_dmin, 0u)) * f32(LD8(b, q2_K_scales, g) >> 4u)); }

FN u32 q2_K_codes4(Src b, u32 g32, u32 j) {
    u32 q = LD32(b, q2_K_qs, 32u * (g32 >> 2u) + 4u * j);
    return (q >> (2u * (g32 & 3u))) & 0x03030303u;
}
