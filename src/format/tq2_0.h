// TQ2_0: 256 weights in 66 bytes: qs 64 B | d f16. Each half of 128 weights has 32 bytes of qs: byte i holds weights i,
// 32 + i, 64 + i, 96 + i, lowest bits first. value = d*(q - 1); q is 0..2 in good files, and 3 counts as it says.
#define tq2_0_qs 0u, 64u, 2u
#define tq2_0_d 64u, 2u, 2u
#define tq2_0_fields(F) F(tq2_0_qs) F(tq2_0_d)

FN f32 tq2_0_scale(Src b, u32) { return f16_f32(LD16(b, tq2_0_d, 0u)); }

FN u32 tq2_0_codes4(Src b, u32 g32, u32 j) {
    u32 q = LD32(b, tq2_0_qs, 32u * (g32 >> 2u) + 4u * j);
    return minus4((q >> (2u * (g32 & 3u))) & 0x03030303u, 0x01010101u);
}
