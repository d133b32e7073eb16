// One operation many times over, bound to memory of a device: what `bench` runs.
//
// The program has a node per launch. They share the activations, which stay in the caches as they do in a model, and
// take turns with the weights or states, which do not.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "measure/bench.h"

namespace ridge::bench {

class Problem {
  public:
    // Operands of `options.op` for `m` tokens: products with weights of `format`, whose rows read activations of type
    // `input`, or attention over `depth` positions and the tokens' own.
    // Throws Error{usage} for a shape that cannot be, Error{limit} where memory is short.
    Problem(Backend &device, const KernelOptions &options, Format format, DType input, uint32_t m, uint32_t depth);
    ~Problem();

    const Program &program() const { return program_; }
    const StepBuffer &step() const { return step_; }
    // How many launches it takes until one reads the weights of the first again.
    uint32_t launches() const { return static_cast<uint32_t>(nodes_.size()); }
    uint32_t copies() const { return copies_; }

    // Rows that can run it under all levers, the best first.
    std::vector<const Kernel *> rows();
    // The row that a plan takes under the options' levers; nullptr: none.
    const Kernel *planned() const;
    // `count` launches by one row, from number `first` on.
    std::unique_ptr<Executable> compile(const Kernel &row, uint32_t first, uint32_t count);

    // Of one launch, on average: bytes of weights or state, multiply-adds.
    double bytes() const { return bytes_; }
    double multiply_adds() const { return multiply_adds_; }

  private:
    class HostMemory;
    void add_products(const KernelOptions &o, Format format, DType input);
    void add_weights(const KernelOptions &o, Format format, uint32_t matrices);
    void add_attention(const KernelOptions &o, uint32_t depth);
    ValueId add_value(Value v);
    void set(ValueId v, const void *data, size_t bytes);
    StepBuffer step_at(uint32_t position, uint32_t count) const;
    void run_once(uint32_t node, const StepBuffer &step);
    const Bindings &bindings_for(Layout layout);

    Backend &device_;
    const uint32_t m_;
    StepLimits limits_;
    StepBuffer step_;
    Program program_;
    std::unique_ptr<HostMemory> weights_;  // as a file would hold them
    std::vector<Buffer> values_, states_;  // by id
    std::vector<Buffer> loaded_;           // keeps weights on the device alive
    std::map<Layout, std::unique_ptr<Bindings>> bindings_;
    std::vector<uint32_t> nodes_;  // to be measured, in turn
    uint32_t copies_ = 0;
    double bytes_ = 0, multiply_adds_ = 0;
};

}  // namespace ridge::bench
