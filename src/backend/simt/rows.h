// The kernel rows of CUDA and HIP, and how a row becomes launches.
//
// A row is a Kernel of the plan and `emit`, which says the grids that it consists of for a step. It is called for every
// step that is run launch by launch and once for a step that is captured into a graph, so it allocates nothing and
// reads of the step only how many tokens and outputs it has: whatever else varies, kernels read on the device.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/simt/args.h"
#include "backend/simt/device_limits.h"
#include "backend/simt/mma_tiles.h"

namespace ridge::simt {

struct Grid {
    uint32_t x = 1, y = 1, z = 1;
};

struct Row;
// The launch in front of another on the same device, nulls where it is the first of a step.
struct Front {
    const Row *row = nullptr;
    const Op *op = nullptr;
};

class Emit {
  public:
    virtual ~Emit() = default;
    virtual Front front() const = 0;
    // Launches kernel `name` of file kernels/<file>.cu. Blocks in which nothing is to be done are left out: a grid with
    // a zero in it is no launch.
    template <class Args>
    void grid(std::string_view file, std::string_view name, Grid blocks, uint32_t threads, size_t shared_bytes,
              const Args &args) {
        launch(file, name, blocks, threads, shared_bytes, &args, sizeof(Args));
    }
    // The step buffer where kernels read it: base and the limits, as Step in args.h.
    virtual uint64_t step_address() const = 0;
    // Memory on the device that is filled once for all executables that ask for the same `key`, which says all that it
    // depends on. `fill` is called on the first request and may allocate.
    virtual uint64_t table(const std::string &key, size_t bytes,
                           const std::function<void(std::span<std::byte>)> &fill) = 0;
    virtual const DeviceLimits &device() const = 0;
    // What an i32 value holds now: waits for all launches so far (lever expert_ids_on_device off). Not while a step is
    // captured.
    virtual std::span<const int32_t> read_ids(uint64_t address, size_t n) = 0;

  protected:
    virtual void launch(std::string_view file, std::string_view name, Grid blocks, uint32_t threads,
                        size_t shared_bytes, const void *args, size_t args_bytes) = 0;
};

struct Row {
    Kernel kernel;
    void (*emit)(const LaunchView &, Emit &) = nullptr;
    // Of a row that cuts routed rows into tiles expert by expert: how full those are with these ids.
    TileFill (*fill)(const LaunchView &, const DeviceLimits &, std::span<const int32_t> ids) = nullptr;
};

// Features of a device that rows may need.
enum : Features {
    kMma = 1,   // NVIDIA, compute capability 8.0 and later: mma.sync of int8, f16, bf16, tf32
    kWmma = 2,  // AMD gfx11 and gfx12
    kMfma = 4,  // AMD gfx9 with matrix cores: v_mfma of int8
    kPdl = 8,   // programmatic dependent launch: compute capability 9.0 and later
    // 160 KiB of shared memory for a block of NVIDIA's, 64 KiB of another's: not compute capability 8.6, 8.9 and 12.0
    kLargeShared = 16,
    // v_mfma of f16 that keeps values below 2^-14: gfx940 and later. That of gfx90a takes them for zeros (AMD:
    // MI200 MFMA behavior specifics)
    kMfmaF16 = 32,
};

// Tables of rows, one per file of host code.
std::span<const Row> contract_dot_rows();
std::span<const Row> contract_mma_rows();
std::span<const Row> contract_f16_rows();
std::span<const Row> attention_rows();
std::span<const Row> other_rows();

// For rows that cannot publish q8 (op.h) inside their kernels: adds the launch that quantises `x`, (rows, cols) f32 on
// the device, into `q8`. A row that says `publishes` either does that or writes view.q8(op.q8) itself.
void emit_quantize(const LaunchView &view, Emit &emit, ValueId x, ValueId q8);

// The step buffer as kernels take it.
inline Step step_of(const LaunchView &v, const Emit &e) {
    const StepLimits &l = v.step.limits;
    return {reinterpret_cast<const i32 *>(e.step_address()), l.tokens, l.outputs, l.sequences, l.pages};
}
// A q8 value as kernels take it.
inline Q8 q8_of(const LaunchView &v, ValueId id) {
    const Q8View q = v.q8(id);
    return {q.codes, q.scale, q.sums};
}

}  // namespace ridge::simt
