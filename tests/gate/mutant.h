// Kernel rows with a planted mistake, for the tests of the gate: what it does not find here it would not find anywhere.
//
// Most mutants run a real row on an altered launch: other operands, another step, another operation. Whatever such a
// row computes is exactly what a row with that mistake in its addressing would. The others are small rows of their own.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "support/forwarding.h"

namespace ridge::test {

// A launch whose parts can be changed: everything is a copy but the buffers, and those on demand.
class Altered {
  public:
    explicit Altered(const LaunchView &view);
    LaunchView view() const { return {program, op, bindings, {words.data(), limits}}; }
    template <class T>
    T &as() {
        return std::get<T>(op);
    }
    uint32_t tokens() const { return static_cast<uint32_t>(words[0]); }
    size_t rows(ValueId v) const { return view().rows(v); }
    size_t cols(ValueId v) const { return view().cols(v); }

    // A copy of a value, weight or state that the launch then reads instead.
    float *own_f32(ValueId v) { return reinterpret_cast<float *>(own(v)); }
    int32_t *own_i32(ValueId v) { return reinterpret_cast<int32_t *>(own(v)); }
    Q8View own_q8(ValueId v) { return Q8View(own(v), rows(v), cols(v)); }
    std::byte *own_weight(WeightId w);
    // Of a state per token: all pages up to the last one of the page table.
    std::span<std::byte> own_state(StateId s);

    int32_t *token() { return &words[4]; }
    int32_t *position() { return token() + limits.tokens; }
    int32_t *sequence() { return position() + limits.tokens; }
    int32_t *output() { return sequence() + limits.tokens; }
    void set_draw(uint32_t output, const Draw &draw);
    int32_t *pages(uint32_t s) { return output() + limits.outputs + limits.sequences + size_t{s} * limits.pages; }

    Program program;
    Op op;
    Bindings bindings;
    StepLimits limits;
    std::vector<int32_t> words;

  private:
    std::byte *own(ValueId v);
    std::vector<std::vector<std::byte>> copies_;
};

struct Mutant {
    std::string name;
    OpKind op;
    // Either: what is wrong with the launch that the real row gets.
    std::function<void(Altered &)> alter;
    // Or: a row of its own, run as one tile.
    void (*instead)(const LaunchView &) = nullptr;
    DType input = DType::f32;
    Format format = Format::Q4_K;  // to gate it on, where the operation has matrices
};

const std::vector<Mutant> &mutants();

// A device that is `inner` but for one row in the mutant's place. One at a time: tiles are plain functions.
class MutantBackend : public Forwarding {
  public:
    MutantBackend(Backend &inner, const Kernel &row, const Mutant &mutant);
    ~MutantBackend() override;
    std::span<const Kernel> kernels() const override { return kernels_; }

  private:
    std::vector<Kernel> kernels_;
};

}  // namespace ridge::test
