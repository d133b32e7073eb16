// IQ2_S: 256 weights in 82 bytes: d f16 | qs 32 B and qh 8 B, per 8 weights the index of a grid entry: 8 low bits and
// 2 high ones | signs 32 B, a bit per weight | scales 8 B, a nibble s per 16 weights; in the order d, qs, signs, qh,
// scales. An entry is 8 magnitudes. value = d*(0.5 + s)*0.25*code.
#define iq2_s_d 0u, 2u, 2u
#define iq2_s_qs 2u, 32u, 2u
#define iq2_s_signs 34u, 32u, 2u
#define iq2_s_qh 66u, 8u, 2u
#define iq2_s_scales 74u, 8u, 2u
#define iq2_s_fields(F) F(iq2_s_d) F(iq2_s_qs) F(iq2_s_signs) F(iq2_s_qh) F(iq2_s_scales)

FN f32 iq2_s_scale(Src b, u32 g) {
    u32 s = nibble(LD8(b, iq2_s_scales, g >> 1u), g & 1u);
    return f16_f32(LD16(b, iq2_s_d, 0u)) * (0.5f + f32(s)) * 0.25f;
}

FN u32 iq2_s_codes4(Src b, u32 g32, u32 j) {
    u32 l = 4u * g32 + (j >> 1u);
    u32 entry = LD8(b, iq2_s_qs, l) | (((LD8(b, iq2_s_qh, g32) >> (2u * (j >> 1u))) & 3u) << 8u);
    return negate4(TAB(iq2s_grid, 2u * entry + (j & 1u)), nibble(LD8(b, iq2_s_signs, l), j & 1u));
}
