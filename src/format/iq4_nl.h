// IQ4_NL: 32 weights in 18 bytes: d f16 | qs 16 B, weight i in the low nibble of byte i, weight 16 + i in the high one.
// value = d*v[q], v a table of 16 signed bytes that are not evenly spaced.
#define iq4_nl_d 0u, 2u, 2u
#define iq4_nl_qs 2u, 16u, 2u
#define iq4_nl_fields(F) F(iq4_nl_d) F(iq4_nl_qs)

FN f32 iq4_nl_scale(Src b, u32) { return f16_f32(LD16(b, iq4_nl_d, 0u)); }

FN u32 iq4_nl_codes4(Src b, u32, u32 j) {
    u32 q = LD32(b, iq4_nl_qs, 4u * (j & 3u)) >> (4u * (j >> 2u));
    return codebook4(TAB(iq4nl_values, 0u), TAB(iq4nl_values, 1u), TAB(iq4nl_values, 2u), TAB(iq4nl_values, 3u), q);
}
