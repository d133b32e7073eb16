// MXFP4: 32 weights in 17 bytes: e, a power of two (E8M0) | qs 16 B, weight i in the low nibble of byte i, weight 16 +
// i in the high one. A nibble is an E2M1 float; the table holds twice its value, an integer, and the scale half of
// E8M0's 2^(e - 127): value = 2^(e - 128)*v[q]. e = 255, NaN in the OCP specification, is 2^127 here as it is for GGUF.
#define mxfp4_e 0u, 1u, 1u
#define mxfp4_qs 1u, 16u, 1u
#define mxfp4_fields(F) F(mxfp4_e) F(mxfp4_qs)

// The smallest two are subnormal in f32.
FN f32 mxfp4_scale(Src b, u32) {
    u32 e = LD8(b, mxfp4_e, 0u);
    return as_f32(e < 2u ? 0x00200000u << e : (e - 1u) << 23u);
}

FN u32 mxfp4_codes4(Src b, u32, u32 j) {
    u32 q = LD32(b, mxfp4_qs, 4u * (j & 3u)) >> (4u * (j >> 2u));
    return codebook4(TAB(mxfp4_values, 0u), TAB(mxfp4_values, 1u), TAB(mxfp4_values, 2u), TAB(mxfp4_values, 3u), q);
}
