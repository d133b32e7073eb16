// The gate of the SIMT backend without a GPU: every row whose matrix units a stand-in has, on every format and shape of
// `ridge gate --quick`, fused forms, captured steps and small models, for waves of 32 and of 64.
//
// The three kinds of devices run under different settings, so that no test costs another run: threads in the order of
// creation on the first, in an order drawn from a seed on the second, work that happens only when something waits for
// it on the third.
#include "measure/gate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "measure/gate_model.h"
#include "measure/gate_replay.h"
#include "simt/gpu.h"

namespace ridge::simt {
namespace {

GateOptions quick(std::string op, std::string row = {}) {
    GateOptions o;
    o.quick = true, o.op = std::move(op), o.row = std::move(row);
    return o;
}

class EmulatedGate : public testing::TestWithParam<GpuKind> {
  protected:
    EmulatedGate() : gpu(GetParam()) {
        if (!gpu.alone()) return;
        if (GetParam().library == kGfx11.library) gpu.set("order_seed", 20);
        if (GetParam().library == kGfx942.library) gpu.set("deferred", 1);
    }

    void expect_passes(const GateReport &report) {
        EXPECT_TRUE(report.ok()) << to_string(report);
        for (const GateRow &row : report.rows)
            EXPECT_TRUE(!row.not_run.empty() || row.result.checked > 100) << row.name;
        fmt::print("{}", to_string(report));
    }

    // Every row of the table that is for an operation which `wanted` takes was run, but for those that need matrix
    // units which the device lacks.
    void gate_ops(bool (*wanted)(OpKind)) {
        const auto device = gpu.open();
        GateReport report;
        for (OpKind op = 0; op < kOpKinds; op++)
            if (op != kind<Copy>() && wanted(op)) report.append(gate_rows(*device, quick(std::string(op_name(op)))));
        std::map<std::string_view, bool> ran, can;
        for (const GateRow &r : report.rows) ran[r.name] = r.not_run.empty();
        std::set<OpKind> ops;
        for (const Kernel &k : device->kernels()) {
            if (!wanted(k.op)) continue;
            can[k.name] = (k.needs & ~device->features()) == 0;
            if (can[k.name]) ops.insert(k.op);
        }
        EXPECT_EQ(ran, can);
        for (OpKind op = 0; op < kOpKinds; op++)
            EXPECT_EQ(ops.contains(op), op != kind<Copy>() && wanted(op)) << op_name(op) << " has no row that runs";
        expect_passes(report);
    }

    Gpu gpu;
};
INSTANTIATE_TEST_SUITE_P(Of, EmulatedGate, testing::Values(kNvidia, kGfx11, kGfx942), kind_name);

TEST_P(EmulatedGate, Contract) {
    RIDGE_NEEDS_GPU(gpu);
    gate_ops([](OpKind op) { return op == kind<Contract>(); });
}
TEST_P(EmulatedGate, GateUp) {
    RIDGE_NEEDS_GPU(gpu);
    gate_ops([](OpKind op) { return op == kind<GateUp>(); });
}
TEST_P(EmulatedGate, Attention) {
    RIDGE_NEEDS_GPU(gpu);
    gate_ops([](OpKind op) { return op == kind<Attention>(); });
}
TEST_P(EmulatedGate, OtherOperations) {
    RIDGE_NEEDS_GPU(gpu);
    gate_ops([](OpKind op) { return op != kind<Contract>() && op != kind<GateUp>() && op != kind<Attention>(); });
}

TEST_P(EmulatedGate, FusedForms) {
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    const GateReport report = gate_fusions(*device, quick("fusion"));
    EXPECT_EQ(report.rows.size(), 8u);
    EXPECT_EQ(report.not_run(), 0u);
    expect_passes(report);
}

// A dense model and one with experts, 64 tokens each.
TEST_P(EmulatedGate, ReplayIsEager) {
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    const GateReport report = gate_replay(*device, quick("replay"));
    EXPECT_EQ(report.rows.size(), 2u);
    expect_passes(report);
    for (const GateRow &r : report.rows) EXPECT_EQ(r.note, "64 tokens");
}

// Of the whole-model gate: a dense model and one with experts under the default levers, and what no other has: windows,
// caps and sinks.
TEST_P(EmulatedGate, Models) {
    RIDGE_NEEDS_GPU(gpu);
    const DeviceChoice devices = gpu.choice({gpu.device()});
    GateReport report;
    for (const char *model : {"model.tiny-qwen3.Q4_K_M.f16.default", "model.tiny-qwen3moe.Q4_K_M.q8_0.default",
                              "model.tiny-gemma2.Q4_K_M.f16.default", "model.tiny-gpt-oss.Q4_K_M.f16.default"}) {
        const GateReport one = gate_models(quick("model", model), 1, devices);
        EXPECT_EQ(one.rows.size(), 1u) << model;
        report.append(one);
    }
    expect_passes(report);
}

}  // namespace
}  // namespace ridge::simt
