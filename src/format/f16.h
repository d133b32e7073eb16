// F16: IEEE 754 binary16.
#define f16_v 0u, 2u, 2u
#define f16_fields(F) F(f16_v)

FN f32 f16_value(Src b, u32 i) { return f16_f32(LD16(b, f16_v, 2u * i)); }
