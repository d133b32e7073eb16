// The emulated gate notices what is wrong with a SIMT row or with what it is given.
//
// The rows of tests/gate/mutants.cpp are tile functions of the CPU. Here a mistake is planted into what the backend is
// given to compile or to run: another operation, other addresses, another step, a launch that is left out. The rows
// then compute exactly what rows with that mistake would.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "measure/gate.h"
#include "simt/gpu.h"
#include "support/forwarding.h"

namespace ridge::simt {
namespace {

// What the backend gets instead.
struct Altered {
    Program program;
    Bindings bindings;
    std::vector<Launch> launches;
    Op &op() { return program.nodes[0].op; }
    template <class T>
    T &as() {
        return std::get<T>(op());
    }
};

struct Mutant {
    const char *name;
    OpKind op;
    std::function<void(Altered &)> alter;
    // What the step says instead: words as in step.h.
    std::function<void(std::span<int32_t>, const StepLimits &)> step = {};
    DType input = DType::f32;
};

class MutantGpu final : public test::Forwarding {
  public:
    MutantGpu(Backend &inner, const Mutant &mutant) : Forwarding(inner), mutant_(mutant) {}
    std::unique_ptr<Executable> compile(const Program &p, const Bindings &b, std::vector<Launch> launches) override {
        auto altered = std::make_unique<Altered>(Altered{p, b, std::move(launches)});
        if (mutant_.alter && altered->op().index() == mutant_.op) mutant_.alter(*altered);
        return std::make_unique<Wrong>(inner(), std::move(altered), mutant_);
    }

  private:
    class Wrong final : public Executable {
      public:
        Wrong(Backend &inner, std::unique_ptr<Altered> a, const Mutant &m)
            : altered_(std::move(a)),
              mutant_(m),
              ready_(inner.compile(altered_->program, altered_->bindings, altered_->launches)) {}
        void run(const StepBuffer &step, StepTrace *trace) override {
            StepBuffer other = step;
            // A StepBuffer shows its words read-only, and this one is not const.
            if (mutant_.step)
                mutant_.step({const_cast<int32_t *>(other.words().data()), other.words().size()}, other.limits());
            ready_->run(other, trace);
        }

      private:
        std::unique_ptr<Altered> altered_;
        const Mutant &mutant_;
        std::unique_ptr<Executable> ready_;
    };
    const Mutant &mutant_;
};

// Changes word `at` of how each output is drawn.
std::function<void(std::span<int32_t>, const StepLimits &)> each_draw(size_t at, int32_t (*changed)(int32_t)) {
    return [=](std::span<int32_t> words, const StepLimits &l) {
        const auto draws = words.last(size_t{kDrawWords} * l.outputs);
        for (size_t i = at; i < draws.size(); i += kDrawWords) draws[i] = changed(draws[i]);
    };
}
std::span<int32_t> positions(std::span<int32_t> words, const StepLimits &l) {
    return words.subspan(4 + l.tokens, l.tokens);
}

void no_launch(Altered &a) { a.launches.clear(); }

template <class T>
Mutant skipped(DType input = DType::f32) {
    return {"is not launched", kind<T>(), no_launch, {}, input};
}

const std::vector<Mutant> &mutants() {
    static const std::vector<Mutant> all = [] {
        std::vector<Mutant> m = {
            skipped<Embed>(),     skipped<RmsNorm>(),    skipped<Quantize>(), skipped<RopeTable>(),  skipped<KvWrite>(),
            skipped<Attention>(), skipped<MoeCombine>(), skipped<MoeRoute>(), skipped<GatherRows>(),
        };
        const auto add = [&](OpKind op, const char *name, std::function<void(Altered &)> alter,
                             DType input = DType::f32) {
            m.push_back({name, op, std::move(alter), {}, input});
        };
        const OpKind contract = kind<Contract>(), gate_up = kind<GateUp>(), attention = kind<Attention>();
        for (const DType input : {DType::f32, DType::q8}) {
            m.push_back(skipped<Contract>(input));
            m.push_back(skipped<GateUp>(input));
            add(
                contract, "leaves out the last row of the last matrix",
                [](Altered &a) {
                    Contract &c = a.as<Contract>();
                    a.program.weights[static_cast<size_t>(c.banks[c.n_banks - 1].weight)].n--;
                },
                input);
            add(
                contract, "forgets the bias",
                [](Altered &a) {
                    for (Bank &b : a.as<Contract>().banks) b.bias = kNone;
                },
                input);
            add(
                gate_up, "swaps gate and up", [](Altered &a) { std::swap(a.as<GateUp>().gate, a.as<GateUp>().up); },
                input);
            add(
                gate_up, "takes gate for up", [](Altered &a) { a.as<GateUp>().up = a.as<GateUp>().gate; }, input);
            add(
                gate_up, "has another unit",
                [](Altered &a) {
                    GluKind &k = a.as<GateUp>().kind;
                    k = k == GluKind::silu ? GluKind::gelu : GluKind::silu;
                },
                input);
        }
        add(attention, "has the window one too wide", [](Altered &a) {
            if (a.as<Attention>().window > 0) a.as<Attention>().window++;
        });
        add(attention, "ignores the window", [](Altered &a) { a.as<Attention>().window = 0; });
        add(attention, "has the scale off by 0.1%", [](Altered &a) { a.as<Attention>().scale *= 1.001f; });
        add(attention, "forgets the cap", [](Altered &a) { a.as<Attention>().softcap = 0; });
        add(attention, "forgets the sinks", [](Altered &a) { a.as<Attention>().sinks = kNone; });
        add(attention, "swaps keys and values",
            [](Altered &a) { std::swap(a.as<Attention>().k_state, a.as<Attention>().v_state); });
        m.push_back({"misses the last position", attention, {}, [](std::span<int32_t> w, const StepLimits &l) {
                         for (int32_t &p : positions(w, l)) p = std::max(p - 1, 0);
                     }});
        m.push_back({"uses the identity table", attention, {}, [](std::span<int32_t> w, const StepLimits &l) {
                         const auto pages =
                             w.subspan(4 + 3 * l.tokens + l.outputs + l.sequences, size_t{l.sequences} * l.pages);
                         for (size_t i = 0; i < pages.size(); i++) pages[i] = static_cast<int32_t>(i % l.pages);
                     }});
        m.push_back({"skips the last token", kind<KvWrite>(), {}, [](std::span<int32_t> w, const StepLimits &) {
                         w[0] = std::max(w[0] - 1, 1);
                     }});
        m.push_back({"is a position behind", kind<RopeTable>(), {}, [](std::span<int32_t> w, const StepLimits &l) {
                         for (int32_t &p : positions(w, l)) p = std::max(p - 1, 0);
                     }});
        const OpKind sample = kind<Sample>();
        constexpr int32_t kOne = 0x3f800000;  // the bits of 1.0f
        m.push_back(skipped<Sample>());
        m.push_back({"draws at temperature 1", sample, {}, each_draw(0, [](int32_t t) { return t == 0 ? 0 : kOne; })});
        m.push_back({"forgets top-p", sample, {}, each_draw(1, [](int32_t) { return kOne; })});
        m.push_back({"forgets min-p", sample, {}, each_draw(2, [](int32_t) { return 0; })});
        m.push_back({"takes one more than top-k", sample, {}, each_draw(3, [](int32_t k) { return k + 1; })});
        m.push_back({"takes the largest", sample, {}, each_draw(0, [](int32_t) { return 0; })});
        m.push_back(
            {"has the high word of the uniform number only", sample, {}, each_draw(4, [](int32_t) { return 0; })});
        m.push_back({"draws as the output before", sample, {}, [](std::span<int32_t> w, const StepLimits &l) {
                         const auto draws = w.last(size_t{kDrawWords} * l.outputs);
                         std::rotate(draws.begin(), draws.end() - kDrawWords, draws.end());
                     }});
        add(kind<KvWrite>(), "swaps k and v", [](Altered &a) {
            KvWrite &w = a.as<KvWrite>();
            if (a.program.value(w.k).cols == a.program.value(w.v).cols) std::swap(w.k, w.v);
        });
        add(kind<Rope>(), "turns other pairs", [](Altered &a) {
            RopePairs &p = a.as<Rope>().pairs;
            p = p == RopePairs::halves ? RopePairs::adjacent : RopePairs::halves;
        });
        add(kind<QkNormRope>(), "forgets the norm of k", [](Altered &a) { a.as<QkNormRope>().k_norm = kNone; });
        add(kind<RmsNorm>(), "has another epsilon", [](Altered &a) { a.as<RmsNorm>().eps *= 4; });
        add(kind<AddRmsNorm>(), "forgets the scale", [](Altered &a) { a.as<AddRmsNorm>().scale = 1; });
        add(kind<MoeRoute>(), "does not normalise", [](Altered &a) { a.as<MoeRoute>().normalize = false; });
        return m;
    }();
    return all;
}

// Every row that runs on the device of the operations which `wanted` takes, with each mistake planted: all must be
// noticed.
void expect_noticed(bool (*wanted)(OpKind)) {
    const Gpu gpu(kNvidia);
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    size_t mistakes = 0, planted = 0, noticed = 0;
    for (const Mutant &m : mutants()) {
        if (!wanted(m.op)) continue;
        mistakes++;
        std::vector<const Kernel *> rows;
        for (const Kernel &k : device->kernels())
            if (k.op == m.op && k.input == m.input && (k.needs & ~device->features()) == 0) rows.push_back(&k);
        // Attention's problems take longest to prepare: each of its mistakes goes into one row, in turn. The ladder of
        // precisions is the same text as the first of its rows.
        if (m.op == kind<Attention>()) {
            std::erase_if(rows, [](const Kernel *k) { return k->name.starts_with("simt.attention.mma."); });
            rows = {rows[mistakes % rows.size()]};
        }
        for (const Kernel *row : rows) {
            const Kernel &k = *row;
            MutantGpu wrong(*device, m);
            GateOptions o;
            o.quick = true, o.op = std::string(op_name(k.op)), o.row = std::string(k.name);
            if (!k.formats.empty() && m.op != kind<Embed>())
                o.format = k.formats.has(Format::IQ2_XXS) && !k.formats.has(Format::Q4_K) ? Format::IQ2_XXS
                           : k.formats.has(Format::Q4_K)                                  ? Format::Q4_K
                                                                                          : Format::F16;
            bool seen = false;
            SCOPED_TRACE(fmt::format("{} {}", k.name, m.name));
            for (const GateRow &r : gate_rows(wrong, o).rows) seen |= r.name == k.name && r.result.nbad > 0;
            planted++, noticed += seen ? 1 : 0;
            EXPECT_TRUE(seen) << k.name << " " << m.name;
        }
    }
    fmt::print("{} mistakes, planted {} times, noticed {} times\n", mistakes, planted, noticed);
    EXPECT_GE(planted, mistakes);
    EXPECT_GT(mistakes, 0u);
}
bool is_product(OpKind op) { return op == kind<Contract>() || op == kind<GateUp>(); }

TEST(EmulatedMutants, OfProductsAreNoticed) { expect_noticed(is_product); }
TEST(EmulatedMutants, OfAttentionAreNoticed) {
    expect_noticed([](OpKind op) { return op == kind<Attention>(); });
}
TEST(EmulatedMutants, OfOthersAreNoticed) {
    expect_noticed([](OpKind op) { return !is_product(op) && op != kind<Attention>(); });
}

// The same detour without a mistake changes nothing.
TEST(EmulatedMutants, WhatIsNotMutatedPasses) {
    const Gpu gpu(kNvidia);
    RIDGE_NEEDS_GPU(gpu);
    const auto device = gpu.open();
    const Mutant none{"as it is", kind<Attention>(), {}};
    MutantGpu right(*device, none);
    for (const char *op : {"contract", "attention", "kv_write", "moe_route"}) {
        GateOptions o;
        o.quick = true, o.op = op;
        if (o.op == "contract") o.format = Format::Q4_K;
        const GateReport report = gate_rows(right, o);
        EXPECT_TRUE(report.ok()) << to_string(report);
    }
}

}  // namespace
}  // namespace ridge::simt
