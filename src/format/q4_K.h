// Q4_K: 256 weights in 144 bytes: d f16 | dmin f16 | scales 12 B, 8 pairs of 6 bits (packed6) | qs 128 B.
// Each 64 weights have 32 bytes of qs: weight i in the low nibble of byte i, weight 32 + i in the high one.
// value = d*sc*q - dmin*m, one (sc, m) pair per 32 weights, q in 0..15.
#define q4_K_d 0u, 2u, 2u
#define q4_K_dmin 2u, 2u, 2u
#define q4_K_scales 4u, 12u, 4u
#define q4_K_qs 16u, 128u, 4u
#define q4_K_fields(F) F(q4_K_d) F(q4_K_dmin) F(q4_K_scales) F(q4_K_qs)

FN f32 q4_K_scale(Src b, u32 g) {
    u32 high = nibble(LD8(b, q4_K_scales, 8u + (g & 3u)), 0u);
    return f16_f32(LD16(b, q4_K_d, 0u)) * f32(packed6(LD8(b, q4_K_scales, g & 3u), high, g));
}

FN f32 q4_K_bias(Src b, u32 g) {
    u32 high = nibble(LD8(b, q4_K_scales, 8u + (g & 3u)), 1u);
    return -(f16_f32(LD16(b, q4_K_dmin, 0u)) * f32(packed6(LD8(b, q4_K_scales, 4u + (g & 3u)), high, g)));
}

FN u32 q4_K_codes4(Src b, u32 g32, u32 j) {
    u32 q = LD32(b, q4_K_qs, 32u * (g32 >> 1u) + 4u * j);
    return (q >> (4u * (g32 & 1u))) & 0x0f0f0f0fu;
}
