// TQ1_0: 256 ternary weights in 54 bytes: qs 48 B, five per byte | qh 4 B, four per byte | d f16. Digit n of a byte q
// is the upper of the two bytes of 3*((q * 3^n) % 256), and the byte's weights are its digits in turn: weights 0..159
// are digits 0..4 of bytes 0..31 of qs (all digits 0 first), 160..239 those of bytes 32..47, 240..255 digits 0..3 of
// qh. value = d*(digit - 1).
#define tq1_0_qs 0u, 48u, 2u
#define tq1_0_qh 48u, 4u, 2u
#define tq1_0_d 52u, 2u, 2u
#define tq1_0_fields(F) F(tq1_0_qs) F(tq1_0_qh) F(tq1_0_d)

FN f32 tq1_0_scale(Src b, u32) { return f16_f32(LD16(b, tq1_0_d, 0u)); }

FN u32 tq1_0_codes4(Src b, u32 g32, u32 j) {
    u32 i = 32u * g32 + 4u * j, n, q;
    if (i < 160u) {
        n = g32;
        q = LD32(b, tq1_0_qs, 4u * j);
    } else if (i < 240u) {
        n = (i - 160u) >> 4u;
        q = LD32(b, tq1_0_qs, 32u + (i & 15u));
    } else {
        n = j & 3u;
        q = LD32(b, tq1_0_qh, 0u);
    }
    u32 power = n < 4u ? (0x1b090301u >> (8u * (n & 3u))) & 255u : 81u;  // 3^n
    u32 even = (((q & 0x00ff00ffu) * power) & 0x00ff00ffu) * 3u;
    u32 odd = ((((q >> 8u) & 0x00ff00ffu) * power) & 0x00ff00ffu) * 3u;
    return minus4(((even >> 8u) & 0x00030003u) | (odd & 0x03000300u), 0x01010101u);
}
