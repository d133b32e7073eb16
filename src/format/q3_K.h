// Q3_K: 256 weights in 110 bytes: hmask 32 B, bit g of byte i is bit 2 of weight 32*g + i | qs 64 B, bits 0..1 |
// scales 12 B, 16 of 6 bits | d f16. Each half of 128 weights has 32 bytes of qs: byte i holds weights i, 32 + i,
// 64 + i, 96 + i, lowest bits first. Scale g has its low nibble in byte g % 8 (g < 8 low, else high) and its upper two
// bits in byte 8 + g % 4, at bit 2*(g / 4). value = d*(sc - 32)*(q - 4), one sc per 16 weights, q in 0..7.
#define q3_K_hmask 0u, 32u, 2u
#define q3_K_qs 32u, 64u, 2u
#define q3_K_scales 96u, 12u, 2u
#define q3_K_d 108u, 2u, 2u
#define q3_K_fields(F) F(q3_K_hmask) F(q3_K_qs) F(q3_K_scales) F(q3_K_d)

FN f32 q3_K_scale(Src b, u32 g) {
    u32 low = nibble(LD8(b, q3_K_scales, g & 7u), g >> 3u);
    u32 high = (LD8(b, q3_K_scales, 8u + (g & 3u)) >> (2u * (g >> 2u))) & 3u;
    return f16_f32(LD16(b, q3_K_d, 0u)) * f32(i32(low | (high << 4u)) - 32);
}

FN u32 q3_K_codes4(Src b, u32 g32, u32 j) {
    u32 low = (LD32(b, q3_K_qs, 32u * (g32 >> 2u) + 4u * j) >> (2u * (g32 & 3u))) & 0x03030303u;
    u32 high = (LD32(b, q3_K_hmask, 4u * j) >> g32) & 0x01010101u;
    return minus4(low | (high << 2u), 0x04040404u);
}
