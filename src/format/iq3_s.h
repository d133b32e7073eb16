// IQ3_S: 256 weights in 110 bytes: d f16 | qs 64 B and qh 8 B, per 4 weights the index of a grid entry: 8 low bits and
// a high one | signs 32 B, a bit per weight | scales 4 B, a nibble s per 32 weights. An entry is 4 magnitudes.
// value = d*(1 + 2*s)*code.
#define iq3_s_d 0u, 2u, 2u
#define iq3_s_qs 2u, 64u, 2u
#define iq3_s_qh 66u, 8u, 2u
#define iq3_s_signs 74u, 32u, 2u
#define iq3_s_scales 106u, 4u, 2u
#define iq3_s_fields(F) F(iq3_s_d) F(iq3_s_qs) F(iq3_s_qh) F(iq3_s_signs) F(iq3_s_scales)

FN f32 iq3_s_scale(Src b, u32 g) {
    u32 s = nibble(LD8(b, iq3_s_scales, g >> 1u), g & 1u);
    return f16_f32(LD16(b, iq3_s_d, 0u)) * f32(1u + 2u * s);
}

FN u32 iq3_s_codes4(Src b, u32 g32, u32 j) {
    u32 entry = LD8(b, iq3_s_qs, 8u * g32 + j) | (((LD8(b, iq3_s_qh, g32) >> j) & 1u) << 8u);
    return negate4(TAB(iq3s_grid, entry), nibble(LD8(b, iq3_s_signs, 4u * g32 + (j >> 1u)), j & 1u));
}
