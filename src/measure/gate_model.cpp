#include "measure/gate_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "gguf/gguf.h"
#include "measure/synthetic.h"
#include "measure/temporary_model.h"
#include "oracle/forward.h"
#include "runtime/model.h"
#include "runtime/sampler.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTiny = "tiny-";  // the shapes that are small enough for an f64 forward pass
constexpr uint32_t kContext = 64;            // beyond the original contexts of the tiny shapes
constexpr size_t kLeastPositions = 6;

std::vector<int32_t> random_tokens(uint32_t vocab, uint64_t seed, size_t count) {
    std::vector<int32_t> t(count);
    for (size_t i = 0; i < t.size(); i++) t[i] = static_cast<int32_t>(uniform(seed, i) * vocab);
    return t;
}

// A file whose routers decide by a margin at enough positions, whatever the activations are rounded to.
struct Case {
    std::unique_ptr<TemporaryModel> file;
    std::unique_ptr<ModelOracle> oracle;

    Case(std::string_view like, std::string_view quant, bool pure) {
        const std::string name = fmt::format("model.{}.{}", like, quant);
        for (uint64_t seed = 1; !oracle; seed++) {
            file = std::make_unique<TemporaryModel>(like, quant, pure, seed);
            const gguf::File f = gguf::File::open(file->path());
            const double e = expected_error(build_program(f), read_hparams(f), true, DType::q8_0);
            // The first positions decide, and take a fraction of the time.
            if (ModelOracle(name, file->path(), seed, kLeastPositions).decided_positions(e) == kLeastPositions)
                oracle = std::make_unique<ModelOracle>(name, file->path(), seed);
        }
    }
};

// Formats and architectures meet in the contractions, which have a gate of their own: few pairs tell whether a model is
// right.
enum class Quick : uint8_t { no, yes, of_two };
struct Quant {
    std::string_view name;
    bool pure;
    Quick quick;
};
constexpr Quant kQuants[] = {{"F32", true, Quick::yes},  {"Q4_K_M", false, Quick::yes},   {"Q8_0", true, Quick::no},
                             {"Q4_1", true, Quick::no},  {"IQ2_XS", true, Quick::of_two}, {"TQ2_0", true, Quick::no},
                             {"MXFP4", true, Quick::no}, {"MXFP4_MOE", false, Quick::no}};

bool wanted(const Quant &q, const ModelShape &shape, bool quick) {
    if (!shape.name.starts_with(kTiny)) return false;
    if (q.name == "MXFP4_MOE" && shape.n_experts == 0) return false;
    const bool is_one_of_two = shape.name == "tiny-llama" || shape.name == "tiny-mixtral";
    return !quick || q.quick == Quick::yes || (q.quick == Quick::of_two && is_one_of_two);
}

}  // namespace

double expected_error(const Program &p, const Hparams &h, bool int8, DType kv) {
    constexpr double u = 0x1p-24;
    const double e_q = 4 / 127.0 / std::sqrt(12.0);
    double squares = 0;
    for (const Node &n : p.nodes) {
        const Contract *c = std::get_if<Contract>(&n.op);
        if (!c) continue;
        const Weight &w = p.weight(c->banks[0].weight);
        const double f32_error = (w.k / 16.0 + 8) * u;
        const double q_error = int8 && !info(w.format).is_float() ? e_q : 0;
        squares += f32_error * f32_error + q_error * q_error;
    }
    const double kv_error = kv == DType::q8_0 ? e_q : kv == DType::f16 ? 0x1p-11 / std::sqrt(3.0) : 0;
    squares += h.n_layers * (2 * kv_error * kv_error + std::pow(64 * u, 2));
    return 2 * std::sqrt(squares);
}

std::string ModelOracle::row_name(const std::string &model, LeverSet levers, DType kv) {
    return fmt::format("{}.{}.{}", model, ridge::name(kv), levers.to_string());
}

ModelOracle::ModelOracle(std::string name, const fs::path &file, uint64_t seed, size_t positions)
    : name_(std::move(name)) {
    const gguf::File f = gguf::File::open(file);
    oracle::Model m(f);
    tokens_ = random_tokens(static_cast<uint32_t>(m.vocab()), seed, positions);
    want_ = m.forward(tokens_, kContext);
}

size_t ModelOracle::decided_positions(double e) const {
    const oracle::Reals &m = want_.route_margin;
    return static_cast<size_t>(std::find_if(m.begin(), m.end(), [&](double gap) { return gap < e / 8; }) - m.begin());
}

GateRow ModelOracle::compare(const fs::path &file, LeverSet levers, DType kv, uint32_t batch, unsigned threads,
                             const DeviceChoice &devices) const {
    const auto model = Model::open(file, {.kv_type = kv, .threads = threads, .devices = devices, .tokenizer = false});
    const auto session = model->session({.context = kContext, .batch = batch, .levers = levers});
    session->evaluate(tokens_, Want::all);
    const double e = expected_error(model->program(), model->hparams(), levers.has(Lever::int8_dot), kv);

    GateRow row;
    row.name = row_name(name_, levers, kv);
    row.cases = 1;
    double kl = 0;
    const size_t positions = decided_positions(e);
    for (size_t p = 0; p < positions; p++) {
        const oracle::RealSpan want = want_.at(p);
        const std::span<const float> got = session->logits(p);
        double squares = 0;
        for (double w : want) squares += w * w;
        const double bound = 6 * e * std::sqrt(squares / static_cast<double>(want.size()));
        for (size_t i = 0; i < want.size(); i++) {
            const double error = std::abs(got[i] - want[i]);
            row.result.checked++;
            if (error <= bound) {
                row.worst = std::max(row.worst, error / bound);
                continue;
            }
            if (row.result.nbad++ == 0)
                row.result.first_bad =
                    fmt::format("position {} token {}: got {}, want {}, bound {}", p, i, got[i], want[i], bound);
        }
        kl += oracle::kl_divergence(want, oracle::Reals(got.begin(), got.end())) / static_cast<double>(positions);
    }
    if (row.result.first_bad.empty()) row.note = fmt::format("mean KL {:.1e}", kl);
    return row;
}

GateReport gate_models(const GateOptions &options, unsigned threads, const DeviceChoice &devices) {
    GateReport report;
    const LeverSet on = LeverSet::defaults();
    for (const ModelShape &shape : synthetic_shapes())
        for (const Quant &q : kQuants) {
            const std::string_view like = shape.name;
            if (!wanted(q, shape, options.quick)) continue;
            const std::string prefix = fmt::format("model.{}.{}", like, q.name);
            // Only a name as long as the prefix can tell before the model is made.
            if (!options.row.empty() && prefix.find(options.row) == std::string::npos &&
                options.row.find(prefix) == std::string::npos)
                continue;
            const Case c(like, q.name, q.pure);
            auto add = [&](LeverSet levers, DType kv, uint32_t batch) {
                if (ModelOracle::row_name(prefix, levers, kv).find(options.row) == std::string::npos) return;
                report.rows.push_back(c.oracle->compare(c.file->path(), levers, kv, batch, threads, devices));
            };
            add(on, DType::f16, 512);
            add(on, DType::f32, 1);
            add(on.without(Lever::int8_dot), DType::f32, 512);
            add(on, DType::q8_0, 512);
            add(on.without(Lever::int8_dot), DType::q8_0, 7);
            add(LeverSet::none(), DType::f32, 7);
            // Every lever off by itself, on one quantisation.
            if (q.name == "Q4_K_M")
                for (const LeverInfo &l : all_levers())
                    if (l.id != Lever::int8_dot) add(on.has(l.id) ? on.without(l.id) : on.with(l.id), DType::f16, 512);
        }
    return report;
}

}  // namespace ridge
