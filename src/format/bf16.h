// BF16: the upper half of an f32.
#define bf16_v 0u, 2u, 2u
#define bf16_fields(F) F(bf16_v)

FN f32 bf16_value(Src b, u32 i) { return as_f32(LD16(b, bf16_v, 2u * i) << 16u); }
