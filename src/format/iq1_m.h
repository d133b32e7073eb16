// IQ1_M: 256 weights in 56 bytes: qs 32 B, the 8 low bits of the index of a grid entry per 8 weights | qh 16 B, a
// nibble per 8 weights: the index's 3 high bits and the sign of delta | scales 4 words of 16 bits: four scales s of 3
// bits, one per 16 weights, and in the top 4 bits a quarter of the f16 d, lowest first. An entry is 8 values of -1,
// 0, 1. value = d*(2*s + 1)*(grid +- 0.125). The delta goes into the code: code = 8*grid +- 1, scale = d*(2*s + 1)/8.
#define iq1_m_qs 0u, 32u, 4u
#define iq1_m_qh 32u, 16u, 4u
#define iq1_m_scales 48u, 8u, 4u
#define iq1_m_fields(F) F(iq1_m_qs) F(iq1_m_qh) F(iq1_m_scales)

FN f32 iq1_m_scale(Src b, u32 g) {
    u32 d = (LD16(b, iq1_m_scales, 0u) >> 12u) | ((LD16(b, iq1_m_scales, 2u) >> 8u) & 0x00f0u) |
            ((LD16(b, iq1_m_scales, 4u) >> 4u) & 0x0f00u) | (LD16(b, iq1_m_scales, 6u) & 0xf000u);
    u32 s = (LD16(b, iq1_m_scales, 2u * (g >> 2u)) >> (3u * (g & 3u))) & 7u;
    return f16_f32(d) * f32(2u * s + 1u) * 0.125f;
}

FN u32 iq1_m_codes4(Src b, u32 g32, u32 j) {
    u32 l = 4u * g32 + (j >> 1u);
    u32 qh = nibble(LD8(b, iq1_m_qh, l >> 1u), l & 1u);
    u32 entry = LD8(b, iq1_m_qs, l) | ((qh & 7u) << 8u);
    u32 plus1 = (TAB(iq1s_grid, entry) >> (4u * (j & 1u))) & 0x0f0f0f0fu;  // grid + 1
    return minus4(plus1 << 3u, (qh & 8u) != 0u ? 0x09090909u : 0x07070707u);
}
