// The formats with codebooks whose eighth sign is a parity, with a table of signs instead (lever sign_parity off), and two
// that store all signs, as controls.
#define RIDGE_SIGNS8(v) ::ridge::simt::sign_table(v)
#include "backend/simt/args.h"

namespace ridge::simt {
#if defined(__CUDACC__) || defined(__HIP__)
#define RIDGE_TABLE static __attribute__((device)) const
#define RIDGE_FN inline __attribute__((device, always_inline))
#else
#define RIDGE_TABLE static const
#define RIDGE_FN inline
#endif
// signs8(v) of dialect.h for v = 0..127.
struct Signs {
    u8 of[128];
    constexpr Signs() : of{} {
        for (u32 v = 0; v < 128; v++) {
            u32 odd = 0;
            for (u32 b = 0; b < 7; b++) odd ^= v >> b & 1;
            of[v] = static_cast<u8>(v | odd << 7);
        }
    }
};
RIDGE_TABLE Signs all_signs;
RIDGE_FN u32 sign_table(u32 v) { return all_signs.of[v & 127]; }
}  // namespace ridge::simt

#include "backend/simt/kernels/contract_dot.cuh"

RIDGE_CONTRACT_DOT(iq2_xxs_signs, OneFormat<FormatId::IQ2_XXS>)
RIDGE_CONTRACT_DOT(iq2_xs_signs, OneFormat<FormatId::IQ2_XS>)
RIDGE_CONTRACT_DOT(iq3_xxs_signs, OneFormat<FormatId::IQ3_XXS>)
RIDGE_CONTRACT_DOT(iq2_s_signs, OneFormat<FormatId::IQ2_S>)
RIDGE_CONTRACT_DOT(iq3_s_signs, OneFormat<FormatId::IQ3_S>)
