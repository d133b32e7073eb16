// IQ2_XS: 256 weights in 74 bytes: d f16 | qs 64 B, 16 bits per 8 weights: index of a grid entry (9 bits) and 7 signs
// (signs8) | scales 8 B, a nibble s per 16 weights. An entry is 8 magnitudes. value = d*(0.5 + s)*0.25*code.
#define iq2_xs_d 0u, 2u, 2u
#define iq2_xs_qs 2u, 64u, 2u
#define iq2_xs_scales 66u, 8u, 2u
#define iq2_xs_fields(F) F(iq2_xs_d) F(iq2_xs_qs) F(iq2_xs_scales)

FN f32 iq2_xs_scale(Src b, u32 g) {
    u32 s = nibble(LD8(b, iq2_xs_scales, g >> 1u), g & 1u);
    return f16_f32(LD16(b, iq2_xs_d, 0u)) * (0.5f + f32(s)) * 0.25f;
}

FN u32 iq2_xs_codes4(Src b, u32 g32, u32 j) {
    u32 q = LD16(b, iq2_xs_qs, 8u * g32 + 2u * (j >> 1u));
    return negate4(TAB(iq2xs_grid, 2u * (q & 511u) + (j & 1u)), nibble(signs8(q >> 9u), j & 1u));
}
