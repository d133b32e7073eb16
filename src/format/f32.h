// F32: values as they are.
#define f32_v 0u, 4u, 4u
#define f32_fields(F) F(f32_v)

FN f32 f32_value(Src b, u32 i) { return as_f32(LD32(b, f32_v, 4u * i)); }
