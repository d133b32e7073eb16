// IQ1_S: 256 weights in 50 bytes: d f16 | qs 32 B, the 8 low bits of the index of a grid entry per 8 weights | qh 8
// words of 16 bits, one per 32 weights: four times the index's 3 high bits, a scale s (bits 12..14), the sign of delta
// (15). An entry is 8 values of -1, 0, 1. value = d*(2*s + 1)*(grid +- 0.125). The delta goes into the code: code =
// 8*grid +- 1, scale = d*(2*s + 1)/8.
#define iq1_s_d 0u, 2u, 2u
#define iq1_s_qs 2u, 32u, 2u
#define iq1_s_qh 34u, 16u, 2u
#define iq1_s_fields(F) F(iq1_s_d) F(iq1_s_qs) F(iq1_s_qh)

FN f32 iq1_s_scale(Src b, u32 g) {
    u32 s = (LD16(b, iq1_s_qh, 2u * g) >> 12u) & 7u;
    return f16_f32(LD16(b, iq1_s_d, 0u)) * f32(2u * s + 1u) * 0.125f;
}

FN u32 iq1_s_codes4(Src b, u32 g32, u32 j) {
    u32 qh = LD16(b, iq1_s_qh, 2u * g32);
    u32 entry = LD8(b, iq1_s_qs, 4u * g32 + (j >> 1u)) | (((qh >> (3u * (j >> 1u))) & 7u) << 8u);
    u32 plus1 = (TAB(iq1s_grid, entry) >> (4u * (j & 1u))) & 0x0f0f0f0fu;  // grid + 1
    return minus4(plus1 << 3u, (qh & 0x8000u) != 0u ? 0x09090909u : 0x07070707u);
}
