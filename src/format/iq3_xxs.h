// IQ3_XXS: 256 weights in 98 bytes: d f16 | qs 64 B, the index of a grid entry per 4 weights | signs 32 B, per 32
// weights a word of four times 7 signs (signs8) with a scale s in its top 4 bits. An entry is 4 magnitudes.
// value = d*(0.5 + s)*0.5*code.
#define iq3_xxs_d 0u, 2u, 2u
#define iq3_xxs_qs 2u, 64u, 2u
#define iq3_xxs_signs 66u, 32u, 2u
#define iq3_xxs_fields(F) F(iq3_xxs_d) F(iq3_xxs_qs) F(iq3_xxs_signs)

FN f32 iq3_xxs_scale(Src b, u32 g) {
    u32 s = LD8(b, iq3_xxs_signs, 4u * g + 3u) >> 4u;
    return f16_f32(LD16(b, iq3_xxs_d, 0u)) * (0.5f + f32(s)) * 0.5f;
}

FN u32 iq3_xxs_codes4(Src b, u32 g32, u32 j) {
    u32 entry = LD8(b, iq3_xxs_qs, 8u * g32 + j);
    u32 signs = signs8((LD32(b, iq3_xxs_signs, 4u * g32) >> (7u * (j >> 1u))) & 127u);
    return negate4(TAB(iq3xxs_grid, entry), nibble(signs, j & 1u));
}
