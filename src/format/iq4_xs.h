// IQ4_XS: 256 weights in 136 bytes: d f16 | scales_h 16 bits, two per 32 weights | scales_l 4 B, a nibble per 32
// weights | qs 128 B. Each 32 weights have 16 bytes of qs: weight i in the low nibble of byte i, weight 16 + i in the
// high one. value = d*(s - 32)*v[q], s of 6 bits, v the table of IQ4_NL.
#define iq4_xs_d 0u, 2u, 2u
#define iq4_xs_scales_h 2u, 2u, 2u
#define iq4_xs_scales_l 4u, 4u, 4u
#define iq4_xs_qs 8u, 128u, 4u
#define iq4_xs_fields(F) F(iq4_xs_d) F(iq4_xs_scales_h) F(iq4_xs_scales_l) F(iq4_xs_qs)

FN f32 iq4_xs_scale(Src b, u32 g) {
    u32 low = nibble(LD8(b, iq4_xs_scales_l, g >> 1u), g & 1u);
    u32 high = (LD16(b, iq4_xs_scales_h, 0u) >> (2u * g)) & 3u;
    return f16_f32(LD16(b, iq4_xs_d, 0u)) * f32(i32(low | (high << 4u)) - 32);
}

FN u32 iq4_xs_codes4(Src b, u32 g32, u32 j) {
    u32 q = LD32(b, iq4_xs_qs, 16u * g32 + 4u * (j & 3u)) >> (4u * (j >> 2u));
    return codebook4(TAB(iq4nl_values, 0u), TAB(iq4nl_values, 1u), TAB(iq4nl_values, 2u), TAB(iq4nl_values, 3u), q);
}
