// What launches touch against what cost() declares, which is what speeds are set against: the emulator counts the
// sectors of 32 bytes that each launch reads and writes.
//
// A launch touches each sector of an operand once however often it reads it, so for one launch
//   read    <= declared + 64 bytes for each contiguous run of an operand (its ends share sectors with what is beside
//   it)
//              + the step buffer, of which kernels read what they need
//   written <= declared + 64 bytes for each run
// and what is handed on through a workspace is written, and read, on top of that: by the launches behind the first one,
// or by the block that joins the parts. Weights are read in full, and none twice by two launches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include "engine/fuse.h"
#include "engine/plan.h"
#include "measure/bench_problem.h"
#include "op/cost.h"
#include "runtime/tiny_model.h"
#include "simt/gpu.h"

namespace ridge::simt {
namespace {

constexpr double kRun = 64;

struct Touched {
    double read = 0, written = 0;
    size_t launches = 0;
};
Touched touched(const Gpu &gpu, const std::function<void()> &run) {
    gpu.library().launches();
    gpu.set("count_bytes", 1);
    run();
    gpu.set("count_bytes", 0);
    Touched t;
    for (const StandinLaunch &l : gpu.library().launches()) {
        t.read += static_cast<double>(l.bytes_read), t.written += static_cast<double>(l.bytes_written);
        t.launches++;
    }
    return t;
}

// `workspace`: bytes that the launch may hand on.
void expect_declared(const std::string &what, const Touched &t, const Cost &c, double runs, double step_bytes,
                     double workspace) {
    const double declared = c.weight_bytes + c.read_bytes;
    EXPECT_GT(t.launches, 0u) << what;
    EXPECT_LE(t.written, c.write_bytes + runs * kRun + workspace) << what << ": written";
    EXPECT_LE(t.read, declared + runs * kRun + step_bytes + workspace) << what << ": read";
    EXPECT_GE(t.read, c.weight_bytes) << what << ": weights are left out";
    EXPECT_GE(t.written, c.write_bytes) << what << ": results are left out";
    fmt::print("{:<64} {} launches, read {:>8.0f} of {:>8.0f} ({:.3f}), written {:>7.0f} of {:>7.0f} ({:.3f})\n", what,
               t.launches, t.read, declared, t.read / declared, t.written, c.write_bytes, t.written / c.write_bytes);
}

class EmulatedBytes : public testing::TestWithParam<GpuKind> {};
INSTANTIATE_TEST_SUITE_P(Of, EmulatedBytes, testing::Values(kNvidia, kGfx11, kGfx942), kind_name);

struct Case {
    const char *op;
    Format format;
    uint32_t tokens, experts, slots;
};

TEST_P(EmulatedBytes, Products) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    constexpr Case kCases[] = {
        {"contract", Format::Q4_K, 1, 0, 0},    {"contract", Format::Q4_K, 7, 0, 0},
        {"contract", Format::Q4_K, 40, 0, 0},   {"contract", Format::Q6_K, 1, 0, 0},
        {"contract", Format::Q6_K, 40, 0, 0},   {"contract", Format::Q8_0, 1, 0, 0},
        {"contract", Format::IQ2_XXS, 1, 0, 0}, {"contract", Format::IQ3_S, 40, 0, 0},
        {"contract", Format::MXFP4, 2, 0, 0},   {"contract", Format::F16, 1, 0, 0},
        {"contract", Format::F32, 40, 0, 0},    {"gate_up", Format::Q4_K, 1, 0, 0},
        {"gate_up", Format::Q5_K, 40, 0, 0},    {"contract", Format::Q4_K, 1, 16, 4},
        {"gate_up", Format::Q4_K, 2, 16, 4},    {"contract", Format::Q4_K, 40, 16, 4},
        {"gate_up", Format::Q6_K, 40, 16, 4},
    };
    for (const Case &k : kCases) {
        bench::KernelOptions o;
        o.op = k.op, o.n = 96, o.k = 1024, o.experts = k.experts, o.slots = k.slots, o.rotate_bytes = 1;
        for (const DType input : {DType::q8, DType::f32}) {
            if (info(k.format).is_float() && input == DType::q8) continue;
            bench::Problem p(*device, o, k.format, input, k.tokens, 0);
            const Program &program = p.program();
            const bool pair = o.op == "gate_up";
            const auto node = std::find_if(program.nodes.begin(), program.nodes.end(), [&](const Node &n) {
                return n.op.index() == (pair ? kind<GateUp>() : kind<Contract>());
            });
            Cost c = cost(program, node->op, {.tokens = k.tokens});
            c.weight_bytes = p.bytes();  // of the experts that are used
            const double routed = k.tokens * std::max(k.slots, 1u);
            // Weights of each expert used; q8 has three parts; x, ids and out.
            const double runs = (pair ? 2 : 1) * std::max(1.0, std::min<double>(k.experts, routed)) + 6;
            for (const Kernel *row : p.rows()) {
                // Written by the first launch and read by the next ones. Experts on matrix units: rows in order, and a
                // tile of 16 bytes for each of three sizes and each expert or 32 rows, read by three launches. Other
                // rows: their workspace, once.
                double handed_on = 0;
                if (row->tile.shared_bytes != nullptr)
                    handed_on = k.experts > 0
                                    ? 3 * (2 * routed * 4 + (3.0 * k.experts + routed / 32) * 16 + 4 * kRun)
                                    : static_cast<double>(row->tile.shared_bytes(program, node->op, p.step().limits()) -
                                                          Tile::kSharedZero);
                const auto ready = p.compile(*row, 0, 1);
                expect_declared(fmt::format("{} {} {} tokens{}", row->name, info(k.format).name, k.tokens,
                                            k.experts > 0 ? fmt::format(", {} of {} experts", k.slots, k.experts) : ""),
                                touched(gpu, [&] { ready->run(p.step()); }), c, runs,
                                static_cast<double>(p.step().words().size_bytes()), handed_on);
            }
        }
    }
}

TEST_P(EmulatedBytes, Attention) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    for (const DType kv : {DType::f16, DType::q8_0})
        for (const uint32_t tokens : {1u, 5u, 40u}) {
            constexpr uint32_t kDepth = 300;
            bench::KernelOptions o;
            o.op = "attention", o.heads = 8, o.kv_heads = 2, o.head_dim = 64, o.kv = kv, o.rotate_bytes = 1;
            bench::Problem p(*device, o, Format::F32, DType::f32, tokens, kDepth);
            const auto node = std::find_if(p.program().nodes.begin(), p.program().nodes.end(),
                                           [](const Node &n) { return n.op.index() == kind<ridge::Attention>(); });
            const Cost c = cost(
                p.program(), node->op,
                {.tokens = tokens, .outputs = 1, .kv_positions = 0, .kv_rows = static_cast<double>(kDepth + tokens)});
            // Runs of a state: a page each, of keys and values.
            const double pages = (kDepth + tokens + kPageTokens - 1) / kPageTokens;
            for (const Kernel *row : p.rows()) {
                // Chunks of one unit of 64 positions here: o, a maximum and a sum of every head, from each chunk.
                const bool parts = row->tile.shared_bytes != nullptr;
                const double handed_on = parts ? tokens * 8 * pages * (64 + 2) * 4.0 + tokens * 2 * 4 + 4 * kRun : 0;
                const auto ready = p.compile(*row, 0, 1);
                expect_declared(fmt::format("{} {} {} tokens", row->name, name(kv), tokens),
                                touched(gpu, [&] { ready->run(p.step()); }), c, 2 * pages + 4,
                                static_cast<double>(p.step().words().size_bytes()), handed_on);
            }
        }
}

// Rows of logits, of several blocks each: what the blocks hand on is at most the workspace.
TEST_P(EmulatedBytes, Choices) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    for (const uint32_t n : {300u, 20000u})
        for (const bool drawn : {false, true})
            for (const uint32_t rows : {1u, 5u}) {
                Program p;
                p.levers = LeverSet::defaults();
                const ValueId x = p.add_value({"x", DType::f32, Rows::outputs, 1, n});
                const ValueId ids = p.add_value({"ids", DType::i32, Rows::outputs, 1, 1});
                const Op op = drawn ? Op{Sample{x, ids}} : Op{ArgMax{x, ids}};
                p.nodes = {{op, 0, 0}}, p.inputs = {x};
                EngineOptions o;
                o.limits = {.tokens = rows, .outputs = rows};
                StepBuffer step(o.limits);
                step.begin();
                for (uint32_t r = 0; r < rows; r++) {
                    step.add(0, r, 0, true);
                    step.set_draw(r, {.temperature = 1, .top_k = 40, .uniform = 0.5});
                }
                WeightStore weights;
                Engine engine(p, {device.get()}, weights, o);
                std::vector<float> logits(size_t{rows} * n);
                for (size_t i = 0; i < logits.size(); i++) logits[i] = static_cast<float>(i * 7919 % 1000);
                engine.write_value(x, std::as_bytes(std::span(logits)));
                for (const Kernel *row : legal_rows(p, op, *device, rows))
                    expect_declared(fmt::format("{} of {}, {} rows", row->name, n, rows),
                                    touched(gpu, [&] { engine.run_node(0, *row, step); }),
                                    cost(p, op, {.tokens = rows, .outputs = rows}), 2.0 * rows,
                                    static_cast<double>(step.words().size_bytes()),
                                    static_cast<double>(row->tile.shared_bytes(p, op, o.limits)));
            }
}

// Every node of a model with experts, by the rows that a plan takes.
TEST_P(EmulatedBytes, EveryNodeOfAModel) {
    const Gpu gpu(GetParam());
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    const LeverSet can = device->fusions();
    for (const uint32_t m : {1u, 9u}) {
        WeightStore weights;
        EngineOptions o;
        o.limits = {.tokens = m, .outputs = 1, .sequences = 1, .pages = 1}, o.keep_values = true;
        Engine engine(fuse(test::tiny_model("tiny-qwen3moe").program, LeverSet::defaults(), {&can, 1}), {device.get()},
                      weights, o);
        StepBuffer step(o.limits);
        step.begin();
        step.set_page(0, 0, 0);
        const std::vector<int32_t> tokens = test::some_tokens(m);
        for (uint32_t i = 0; i < m; i++) step.add(tokens[i], i, 0, i + 1 == m);
        engine.run(step);
        const Program &p = engine.program();
        const Plan &plan = engine.plan_for(m);
        std::set<OpKind> ops;
        for (const Choice &choice : plan.choices) {
            const Op &op = p.nodes[choice.node].op;
            StepCount count{.tokens = m, .outputs = 1, .kv_positions = m * (m + 1) / 2.0, .kv_rows = double(m)};
            ValueId ids = kNone;
            if (const auto *c = std::get_if<Contract>(&op)) ids = c->ids;
            if (const auto *g = std::get_if<GateUp>(&op)) ids = g->ids;
            size_t experts = 1, routed = 0;
            if (ids != kNone) {
                const auto bytes = engine.read_value(ids, m);
                std::vector<int32_t> chosen(bytes.size() / 4);
                std::memcpy(chosen.data(), bytes.data(), bytes.size());
                routed = chosen.size();
                const std::set<int32_t> used(chosen.begin(), chosen.end());
                const auto *c = std::get_if<Contract>(&op);
                const Weight &w = p.weight(c ? c->banks[0].weight : std::get<GateUp>(op).gate);
                count.expert_share = static_cast<double>(used.size()) / w.experts;
                experts = used.size();
            }
            const Cost c = cost(p, op, count);
            double workspace = 0;
            if (choice.chosen->tile.shared_bytes != nullptr)
                workspace = static_cast<double>(choice.chosen->tile.shared_bytes(p, op, o.limits) + routed * 16);
            // A row that has the q8 form made by a launch of its own writes and reads the f32 form, wanted or not.
            const Touched t = touched(gpu, [&] { engine.run_node(choice.node, *choice.chosen, step); });
            if (published(op) != kNone && t.launches > 1) {
                const Value &q8 = p.value(published(op));
                workspace += static_cast<double>(rows_of(q8, m, 1) * q8.cols * sizeof(float));
            }
            // Angles are a table that was uploaded once, as wide as the result.
            if (std::holds_alternative<RopeTable>(op)) workspace += c.write_bytes;
            // Up to five operands with a run for each expert or token, q8 in three parts.
            const double runs = 5.0 * static_cast<double>(std::max<size_t>(experts, m)) + 8;
            expect_declared(fmt::format("{} node {} with {} tokens", choice.chosen->name, choice.node, m), t, c, runs,
                            static_cast<double>(step.words().size_bytes()), workspace);
            ops.insert(static_cast<OpKind>(op.index()));
        }
        EXPECT_GE(ops.size(), 9u);
    }
}

}  // namespace
}  // namespace ridge::simt
