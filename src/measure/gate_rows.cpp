// Problems for the operations that work row by row: embed, rmsnorm, add_rmsnorm, quantize, add, silu_mul, gather_rows.
#include <fmt/format.h>

#include <cmath>

#include "measure/gate_problems.h"
#include "op/bound.h"

namespace ridge::gate {
namespace {

std::vector<uint32_t> step_sizes(const Trial &trial) {
    if (trial.options().quick) return {1, 2, 9, 34};
    return {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 66};
}

ValueId add_value(Problem &p, std::string name, uint32_t cols, uint32_t per_row = 1, DType type = DType::f32) {
    return p.program.add_value({std::move(name), type, Rows::tokens, per_row, cols});
}

void try_embed(Trial &trial, Format f, uint32_t k, float scale) {
    constexpr uint32_t kVocab = 37;
    Problem p;
    Embed op;
    op.table = p.program.add_weight({"table", f, kVocab, k, 1, nullptr});
    op.out = add_value(p, "out", k);
    op.scale = scale;
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("{} k={} scale={}", info(f).name, k, scale);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    for (size_t i = 0; i < p.tokens.size(); i++) p.tokens[i].id = static_cast<int32_t>((i * 7 + 36) % kVocab);
    p.fill = [op, k, scale](Problem &q) {
        Random random(k);
        q.set_weight(op.table, random_weight(random, q.program.weight(op.table)));
        const DecodedWeight d = decode(q.program.weight(op.table));
        Reals want;
        for (const Token &t : q.tokens)
            for (size_t j = 0; j < k; j++) {
                const double w = d.value[static_cast<size_t>(t.id) * k + j];
                want.push_back(static_cast<float>(w * scale));  // exact in double, so rounded once
            }
        q.expect(op.out, std::move(want));
    };
    trial.run(p);
}

// x with rows of every character, and an ordinary weight with some zeros and large values.
Reals norm_weight(Random &random, size_t n) {
    Reals w = normals(random, n);
    for (size_t j = 0; j < n; j += 11) w[j] = j % 2 ? 0 : w[j] * 50;
    return w;
}

void try_rmsnorm(Trial &trial, uint32_t width, uint32_t groups, uint32_t per_row, float eps) {
    Problem p;
    RmsNorm op;
    op.x = add_value(p, "x", width * groups, per_row);
    op.out = add_value(p, "out", width * groups, per_row);
    op.weight = p.program.add_weight({"weight", Format::F32, 1, width, 1, nullptr});
    op.width = width, op.eps = eps;
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("width={} of {} columns, {} rows per token, eps={}", width, width * groups, per_row, eps);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, width, eps](Problem &q) {
        Random random(width);
        const uint32_t cols = q.program.value(op.x).cols;
        Reals x = activations(random, q.rows(op.x), cols);
        const Reals weight = norm_weight(random, width);
        const Reals want = oracle::rms_norm(x, weight, eps);
        q.set_weight(op.weight, f32_weight(weight));
        q.inputs.push_back({op.x, std::move(x)});
        q.expect(op.out, want, [=](Order o, size_t i) { return bound::rmsnorm(o, width, want[i], weight[i % width]); });
    };
    trial.run(p);
}

Reals f32_sum(RealSpan a, RealSpan b) {
    Reals sum = oracle::add(a, b);
    for (double &v : sum) v = static_cast<float>(v);  // rounding a double sum of two f32 again changes nothing
    return sum;
}

void try_add_rmsnorm(Trial &trial, uint32_t n, float eps) {
    Problem p;
    AddRmsNorm op;
    op.a = add_value(p, "a", n), op.b = add_value(p, "b", n);
    op.sum = add_value(p, "sum", n), op.out = add_value(p, "out", n);
    op.weight = p.program.add_weight({"weight", Format::F32, 1, n, 1, nullptr});
    op.eps = eps;
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={}", n);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n, eps](Problem &q) {
        Random random(n);
        Reals a = activations(random, q.rows(op.a), n), b = activations(random, q.rows(op.b), n, 2);
        const Reals sum = f32_sum(a, b), weight = norm_weight(random, n);
        const Reals want = oracle::rms_norm(sum, weight, eps);
        q.set_weight(op.weight, f32_weight(weight));
        q.inputs = {{op.a, std::move(a)}, {op.b, std::move(b)}};
        q.expect(op.sum, sum);
        q.expect(op.out, want, [=](Order o, size_t i) { return bound::rmsnorm(o, n, want[i], weight[i % n]); });
    };
    trial.run(p);
}

// Characters of `activations`, and values that are ties between two codes: the largest of the block is 127, so the
// scale is exactly 1.
Reals quantize_input(Random &random, size_t rows, uint32_t k) {
    Reals x = activations(random, rows, k);
    for (size_t r = 3; r < rows; r += 4)
        for (size_t j = 0; j < k; j++)
            x[r * k + j] = j % 32 == 5 ? -127 : static_cast<double>(random.below(254)) - 126.5;
    return x;
}

void try_quantize(Trial &trial, uint32_t k, uint32_t per_row) {
    Problem p;
    const Quantize op{add_value(p, "x", k, per_row), add_value(p, "out", k, per_row, DType::q8)};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("k={}, {} rows per token", k, per_row);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, k](Problem &q) {
        Random random(k);
        Reals x = quantize_input(random, q.rows(op.x), k);
        q.expect(op.out, quantize(q.rows(op.x), k, x));
        q.inputs.push_back({op.x, std::move(x)});
    };
    trial.run(p);
}

void try_add(Trial &trial, uint32_t n) {
    Problem p;
    const Add op{add_value(p, "a", n), add_value(p, "b", n), add_value(p, "out", n)};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={}", n);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n](Problem &q) {
        Random random(n);
        Reals a = activations(random, q.rows(op.a), n), b = activations(random, q.rows(op.b), n, 1);
        q.expect(op.out, f32_sum(a, b));
        q.inputs = {{op.a, std::move(a)}, {op.b, std::move(b)}};
    };
    trial.run(p);
}

void try_silu_mul(Trial &trial, uint32_t n, uint32_t per_row) {
    Problem p;
    const SiluMul op{add_value(p, "gate", n, per_row), add_value(p, "up", n, per_row), add_value(p, "out", n, per_row)};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={}, {} rows per token", n, per_row);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n](Problem &q) {
        Random random(n);
        Reals gate = activations(random, q.rows(op.gate), n), up = activations(random, q.rows(op.up), n, 3);
        // Where exp overflows or vanishes.
        for (size_t i = 0; i < gate.size(); i += 5) gate[i] = static_cast<float>(200 * (random.uniform() - 0.5));
        const Reals want = oracle::silu_mul(gate, up);
        q.inputs = {{op.gate, gate}, {op.up, up}};
        q.expect(op.out, want, [=](Order, size_t i) { return bound::silu_mul(gate[i], up[i], want[i]); });
    };
    trial.run(p);
}

void try_gather_rows(Trial &trial, uint32_t n) {
    Problem p;
    GatherRows op;
    op.x = add_value(p, "x", n);
    op.out = p.program.add_value({"out", DType::f32, Rows::outputs, 1, n});
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={}", n);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    for (size_t i = 0; i < p.tokens.size(); i++) p.tokens[i].wanted = i % 4 == 1 || i % 7 == 3;
    p.fill = [op, n](Problem &q) {
        Random random(n);
        Reals x = activations(random, q.rows(op.x), n), want;
        for (size_t i = 0; i < q.tokens.size(); i++)
            if (q.tokens[i].wanted) want.insert(want.end(), &x[i * n], &x[i * n] + n);
        q.expect(op.out, std::move(want));
        q.inputs.push_back({op.x, std::move(x)});
    };
    trial.run(p);
}

}  // namespace

void try_embed(Trial &trial) {
    if (!trial.wants(kind<Embed>())) return;
    for (const FormatInfo &f : all_formats()) {
        if (!trial.wants(f.id)) continue;
        try_embed(trial, f.id, f.is_float() ? 19 : f.block, 1);
        try_embed(trial, f.id, f.is_float() ? 72 : 3 * f.block, 0.37f);
    }
}

void try_rmsnorm(Trial &trial) {
    if (!trial.wants(kind<RmsNorm>())) return;
    for (const uint32_t n : {1u, 5u, 16u, 40u, 127u, 576u, 1027u}) try_rmsnorm(trial, n, 1, 1, 1e-5f);
    try_rmsnorm(trial, 64, 9, 1, 1e-6f);
    try_rmsnorm(trial, 40, 3, 2, 1e-6f);
}

void try_add_rmsnorm(Trial &trial) {
    if (!trial.wants(kind<AddRmsNorm>())) return;
    for (const uint32_t n : {1u, 16u, 40u, 127u, 576u, 1027u}) try_add_rmsnorm(trial, n, 1e-5f);
}

void try_quantize(Trial &trial) {
    if (!trial.wants(kind<Quantize>())) return;
    for (const uint32_t k : {32u, 64u, 96u, 288u, 1056u, 2560u}) try_quantize(trial, k, 1);
    try_quantize(trial, 96, 3);
}

void try_elementwise(Trial &trial) {
    for (const uint32_t n : {1u, 7u, 16u, 33u, 576u, 1029u}) {
        if (trial.wants(kind<Add>())) try_add(trial, n);
        if (trial.wants(kind<SiluMul>())) try_silu_mul(trial, n, n == 33 ? 3 : 1);
        if (trial.wants(kind<GatherRows>())) try_gather_rows(trial, n);
    }
}

}  // namespace ridge::gate
