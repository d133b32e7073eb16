// Whole models against a forward pass in double: small synthetic models of every architecture, several quantisations,
// every lever on and off.
//
// What is bounded is the error that rounding can explain. With R = rms of a position's logits, an element is bad where
// |got - want| > 6 R e, e being the expected relative error (a normal error passes 6 standard deviations about once in
// 10^9). e is a sum over the stages of the model (per layer: four contraction inputs and the attention; then the
// output):
//   f32 activations: each contraction adds at most (k/16 + 8) roundings of u = 2^-24 in a row;
//   int8 activations: each input has an error of scale * sqrt(1/12) per element, scale = max/127 of a block of 32. A
//     normal block's maximum is 2.1 of its rms on average, 4 at most in practice: e_q = 4 / 127 / sqrt(12) = 0.9%;
//   KV in f16: 2^-11 / sqrt(3) for each of k and v; in q8_0: e_q for each, as the blocks are of the same kind.
// Independent errors add as squares. Synthetic models are made so that a relative error passes the layers unamplified,
// up to the softmaxes, which the factor 2 pays for.
//
// A router's close call may fall either way once activations are rounded, and from there on the logits are those of
// another path. The gap between two probabilities near the cut (at most 1/8) has an error of sqrt(2)/8 times that of
// the router's input, which is below e/4 (no factor 2, and half of the stages). So positions count up to the first
// whose gap is below e/8, about three standard deviations, and files are made with a seed that leaves at least six of
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "measure/gate.h"
#include "model/model.h"
#include "oracle/forward.h"
#include "runtime/devices.h"

namespace ridge {

// e of a program, plain or fused. `int8`: activations meet block formats as int8.
double expected_error(const Program &p, const Hparams &h, bool int8, DType kv);

// One model file and its logits in double over a few random tokens, computed once.
class ModelOracle {
  public:
    static constexpr size_t kPositions = 24;
    // `positions`: fewer are the first of the same tokens.
    ModelOracle(std::string name, const std::filesystem::path &file, uint64_t seed, size_t positions = kPositions);

    // The engine's logits on `file`, the same one but for mutants, against the oracle's. `batch`: tokens per step.
    GateRow compare(const std::filesystem::path &file, LeverSet levers, DType kv, uint32_t batch, unsigned threads,
                    const DeviceChoice &devices = {.names = {"cpu"}}) const;

    // "model.tiny-qwen3.Q4_K_M.f16.default", of model "model.tiny-qwen3.Q4_K_M".
    static std::string row_name(const std::string &model, LeverSet levers, DType kv);

    // Positions that count where the logits' expected relative error is `e`.
    size_t decided_positions(double e) const;

  private:
    std::string name_;
    std::vector<int32_t> tokens_;
    oracle::Logits want_;
};

// `threads`: 0 as many as the machine grants. `options.quick`: fewer quantisations. `options.row` selects by name, such
// as "model.tiny-qwen3.Q4_K_M.f16.default".
GateReport gate_models(const GateOptions &options, unsigned threads, const DeviceChoice &devices = {.names = {"cpu"}});

}  // namespace ridge
