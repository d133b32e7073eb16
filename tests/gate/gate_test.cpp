// The gate itself: it passes what is right, on any number of threads; it fails where nothing was checked; and it kills
// every planted mistake.
#include "measure/gate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "backend/cpu/cpu.h"
#include "cli/flags.h"
#include "core/error.h"
#include "gate/mutant.h"

namespace ridge {
namespace {

std::unique_ptr<Backend> cpu(unsigned threads) {
    CpuOptions options;
    options.threads = threads;
    return make_cpu_backend(options);
}

GateOptions quick() {
    GateOptions o;
    o.quick = true;
    return o;
}

bool runs_on(const Kernel &k, const Backend &device) { return (k.needs & ~device.features()) == 0; }

class Cpu : public testing::TestWithParam<unsigned> {};

TEST_P(Cpu, EveryRowPasses) {
    const auto device = cpu(GetParam());
    const GateReport report = gate_rows(*device, quick());
    EXPECT_TRUE(report.ok()) << to_string(report);
    EXPECT_EQ(report.rows.size(), device->kernels().size());
    for (const GateRow &row : report.rows) EXPECT_TRUE(!row.not_run.empty() || row.result.checked > 1000) << row.name;
    std::set<OpKind> covered;
    for (const Kernel &k : device->kernels())
        if (runs_on(k, *device)) covered.insert(k.op);
    EXPECT_EQ(covered.size(), kOpKinds - 1) << "every operation but copy has a row, and so a gate";
    fmt::print("{}", to_string(report));
}

TEST_P(Cpu, FusedFormsEqualTheirParts) {
    const auto device = cpu(GetParam());
    const GateReport report = gate_fusions(*device, quick());
    EXPECT_TRUE(report.ok()) << to_string(report);
    EXPECT_EQ(report.rows.size(), 8u);
    EXPECT_EQ(report.not_run(), 1u) << "no row of the CPU publishes q8";
}

INSTANTIATE_TEST_SUITE_P(Threads, Cpu, testing::Values(1u, 2u, 5u));

TEST(Gate, EveryFormatPasses) {
    const GateReport report = gate_formats(quick());
    EXPECT_TRUE(report.ok()) << to_string(report);
    EXPECT_EQ(report.rows.size(), all_formats().size());
}

TEST(Gate, CheckingNothingFails) {
    const auto device = cpu(1);
    GateOptions nothing = quick();
    nothing.row = "no row is called this";
    EXPECT_FALSE(gate_rows(*device, nothing).ok());
    EXPECT_FALSE(GateReport{}.ok());
    GateReport unchecked;
    unchecked.rows.push_back({});
    EXPECT_FALSE(unchecked.ok());
    // A row that the machine cannot run is told and does not count as a success of its own.
    unchecked.rows[0].not_run = "needs magic";
    EXPECT_FALSE(unchecked.ok());
    EXPECT_NE(to_string(unchecked).find("not run: needs magic"), std::string::npos);
}

int exit_code(const std::string &arguments) {
    CLI::App app;
    add_gate(app);
    try {
        app.parse(arguments);
    } catch (const CLI::RuntimeError &e) {
        return e.get_exit_code();
    }
    return 0;
}

TEST(Gate, TheCommandFailsWhereNothingWasChecked) {
    EXPECT_EQ(exit_code("gate --quick -t 2 --op rope"), 0);
    EXPECT_EQ(exit_code("gate --quick --op fusion --row moe_route --json"), 0);
    EXPECT_EQ(exit_code("gate --op format --format q4_k"), 0);
    EXPECT_EQ(exit_code("gate --list --op rope"), 0);
    EXPECT_EQ(exit_code("gate --quick --row no_row_is_called_this"), 1);
    EXPECT_EQ(exit_code("gate --quick --op rope --format q4_k"), 1);
    EXPECT_THROW(exit_code("gate --op rope_rope"), Error);
    EXPECT_THROW(exit_code("gate --format q4_x"), Error);
    EXPECT_THROW(exit_code("gate --device gpu"), Error);
}

// A device whose rows cannot be checked, each for a reason of its own.
class Odd : public test::MutantBackend {
  public:
    Odd(Backend &inner, const Kernel &row, const test::Mutant &mutant, void (*change)(Kernel &))
        : MutantBackend(inner, row, mutant), rows_(MutantBackend::kernels().begin(), MutantBackend::kernels().end()) {
        for (Kernel &k : rows_)
            if (k.name == "mutant") change(k);
    }
    std::span<const Kernel> kernels() const override { return rows_; }

  private:
    std::vector<Kernel> rows_;
};

const Kernel &row_of(const Backend &device, OpKind op, DType input) {
    for (const Kernel &k : device.kernels())
        if (k.op == op && k.input == input && runs_on(k, device)) return k;
    throw std::logic_error("no such row");
}

GateReport gate_odd(OpKind op, void (*change)(Kernel &)) {
    const auto device = cpu(1);
    const test::Mutant none{"as it is", op, {}};
    Odd odd(*device, row_of(*device, op, DType::f32), none, change);
    GateOptions o = quick();
    o.row = "mutant", o.op = op_name(op);
    if (op == kind<Contract>()) o.format = Format::F32;
    return gate_rows(odd, o);
}

TEST(Gate, ARowThatTakesNoProblemFails) {
    const GateReport report = gate_odd(kind<Add>(), [](Kernel &k) {
        k.refuses = [](const Program &, const Op &) -> std::string_view { return "it is shy"; };
        k.lever = Lever::none;
    });
    ASSERT_EQ(report.rows.size(), 1u);
    EXPECT_EQ(report.rows[0].result.checked, 0u);
    EXPECT_FALSE(report.ok());
}

TEST(Gate, AFormatThatIsClaimedButRefusedFails) {
    const GateReport report = gate_odd(kind<Contract>(), [](Kernel &k) {
        k.refuses = [](const Program &, const Op &) -> std::string_view { return "not this one"; };
    });
    ASSERT_EQ(report.rows.size(), 1u);
    EXPECT_NE(report.rows[0].result.first_bad.find("claims F32"), std::string::npos);
    EXPECT_FALSE(report.ok());
}

TEST(Gate, AMissingFeatureIsReported) {
    const GateReport report = gate_odd(kind<Add>(), [](Kernel &k) { k.needs = Features{1} << 31; });
    ASSERT_EQ(report.rows.size(), 1u);
    EXPECT_FALSE(report.rows[0].not_run.empty());
    EXPECT_EQ(report.not_run(), 1u);
    EXPECT_FALSE(report.ok()) << "nothing ran";
}

Format first(FormatSet formats) {
    for (const FormatInfo &f : all_formats())
        if (formats.has(f.id)) return f.id;
    return {};
}

// Runs the gate on every row of the mutant's operation, each with the mistake planted.
struct Hunt {
    size_t planted = 0, killed = 0;
    std::string survivors;
};
Hunt hunt(Backend &device, const test::Mutant &mutant) {
    Hunt h;
    for (const Kernel &k : device.kernels()) {
        if (k.op != mutant.op || k.input != mutant.input || !runs_on(k, device)) continue;
        test::MutantBackend wrong(device, k, mutant);
        GateOptions o = quick();
        o.row = "mutant", o.op = op_name(k.op);
        if (!k.formats.empty()) o.format = k.formats.has(mutant.format) ? mutant.format : first(k.formats);
        const GateReport report = gate_rows(wrong, o);
        h.planted++;
        if (report.rows.size() == 1 && report.rows[0].result.checked > 0 && report.rows[0].result.nbad > 0)
            h.killed++;
        else
            h.survivors += fmt::format("{} {}\n", k.name, mutant.name);
    }
    return h;
}

TEST(Gate, KillsEveryMutant) {
    const std::unique_ptr<Backend> devices[] = {cpu(1), cpu(2), cpu(5)};
    size_t planted = 0, killed = 0, turn = 0;
    std::set<OpKind> ops;
    for (const test::Mutant &m : test::mutants()) {
        const Hunt h = hunt(*devices[turn++ % 3], m);
        EXPECT_GT(h.planted, 0u) << op_name(m.op) << " " << m.name;
        EXPECT_EQ(h.killed, h.planted) << h.survivors;
        planted += h.planted, killed += h.killed;
        ops.insert(m.op);
    }
    EXPECT_EQ(ops.size(), kOpKinds - 1);
    fmt::print("{} mistakes in {} operations, planted {} times, killed {} times\n", test::mutants().size(), ops.size(),
               planted, killed);
}

// The same detour without a mistake changes nothing: mutants die of their mistakes.
TEST(Gate, SparesWhatIsNotMutated) {
    const auto device = cpu(2);
    for (OpKind op = 0; op < kOpKinds; op++) {
        if (op == kind<Copy>()) continue;
        for (const DType input : {DType::f32, DType::q8}) {
            if (input == DType::q8 && op != kind<Contract>() && op != kind<GateUp>()) continue;
            const Hunt h = hunt(*device, {"as it is", op, [](test::Altered &) {}, nullptr, input});
            EXPECT_GT(h.planted, 0u) << op_name(op);
            EXPECT_EQ(h.killed, 0u) << op_name(op);
        }
    }
}

}  // namespace
}  // namespace ridge
