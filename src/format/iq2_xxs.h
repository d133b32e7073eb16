// IQ2_XXS: 256 weights in 66 bytes: d f16 | qs 64 B, 8 per 32 weights: four indices of grid entries (8 bits each), then
// a word of four times 7 signs (signs8) with a scale s in its top 4 bits. An entry is 8 magnitudes.
// value = d*(0.5 + s)*0.25*code.
#define iq2_xxs_d 0u, 2u, 2u
#define iq2_xxs_qs 2u, 64u, 2u
#define iq2_xxs_fields(F) F(iq2_xxs_d) F(iq2_xxs_qs)

FN f32 iq2_xxs_scale(Src b, u32 g) {
    u32 s = LD8(b, iq2_xxs_qs, 8u * g + 7u) >> 4u;
    return f16_f32(LD16(b, iq2_xxs_d, 0u)) * (0.5f + f32(s)) * 0.25f;
}

FN u32 iq2_xxs_codes4(Src b, u32 g32, u32 j) {
    u32 entry = LD8(b, iq2_xxs_qs, 8u * g32 + (j >> 1u));
    u32 signs = signs8((LD32(b, iq2_xxs_qs, 8u * g32 + 4u) >> (7u * (j >> 1u))) & 127u);
    return negate4(TAB(iq2xxs_grid, 2u * entry + (j & 1u)), nibble(signs, j & 1u));
}
