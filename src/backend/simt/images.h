// The code objects that were built into this program: one per kernel file and, for HIP, per architecture. CUDA's hold
// all architectures that were asked for.
#pragma once

#include <span>
#include <string_view>

namespace ridge::simt {

struct Image {
    std::string_view file;    // "contract_dot", of kernels/contract_dot.cu
    std::string_view target;  // "sm_80 sm_90a", "gfx1151"
    const unsigned char *code;
};
// Empty where the build left them out; absent() says why.
std::span<const Image> cuda_images();
std::span<const Image> hip_images();
std::string_view cuda_absent();
std::string_view hip_absent();

}  // namespace ridge::simt
