// Problems for the operations that work row by row: embed, rmsnorm, add_rmsnorm, quantize, add, glu, scale, row_gate,
// gather_rows.
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

// a + scale * b, rounded once.
Reals f32_sum(RealSpan a, RealSpan b, float scale) {
    Reals sum(a.size());
    for (size_t i = 0; i < sum.size(); i++)
        sum[i] = std::fma(static_cast<float>(b[i]), scale, static_cast<float>(a[i]));
    return sum;
}

// sum_s weights[i, s] * x[i * slots + s], s ascending, each product added with one rounding.
Reals f32_combined(RealSpan x, RealSpan weights, uint32_t n, uint32_t slots) {
    Reals out(x.size() / slots);
    for (size_t i = 0; i < out.size(); i++) {
        float sum = 0;
        for (size_t s = i / n * slots; s < (i / n + 1) * slots; s++)
            sum = std::fma(static_cast<float>(weights[s]), static_cast<float>(x[s * n + i % n]), sum);
        out[i] = sum;
    }
    return out;
}

// slots > 0: b is combined of so many rows for each token.
void try_add_rmsnorm(Trial &trial, uint32_t n, float eps, float scale, uint32_t slots) {
    Problem p;
    AddRmsNorm op;
    op.a = add_value(p, "a", n), op.b = add_value(p, "b", n, std::max(slots, 1u));
    if (slots > 0) op.slots = add_value(p, "slots", slots);
    op.sum = add_value(p, "sum", n), op.out = add_value(p, "out", n);
    op.weight = p.program.add_weight({"weight", Format::F32, 1, n, 1, nullptr});
    op.eps = eps, op.scale = scale;
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={} scale={} slots={}", n, scale, slots);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n, eps, slots](Problem &q) {
        Random random(n + slots);
        Reals a = activations(random, q.rows(op.a), n), b = activations(random, q.rows(op.b), n, 2), combined = b;
        if (slots > 0) {
            Reals weights = normals(random, q.rows(op.slots) * slots);
            combined = f32_combined(b, weights, n, slots);
            q.inputs.push_back({op.slots, std::move(weights)});
        }
        const Reals sum = f32_sum(a, combined, op.scale), weight = norm_weight(random, n);
        const Reals want = oracle::rms_norm(sum, weight, eps);
        q.set_weight(op.weight, f32_weight(weight));
        q.inputs.push_back({op.a, std::move(a)}), q.inputs.push_back({op.b, std::move(b)});
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

void try_add(Trial &trial, uint32_t n, float scale) {
    Problem p;
    const Add op{add_value(p, "a", n), add_value(p, "b", n), add_value(p, "out", n), scale};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={} scale={}", n, scale);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n](Problem &q) {
        Random random(n);
        Reals a = activations(random, q.rows(op.a), n), b = activations(random, q.rows(op.b), n, 1);
        q.expect(op.out, f32_sum(a, b, op.scale));
        q.inputs = {{op.a, std::move(a)}, {op.b, std::move(b)}};
    };
    trial.run(p);
}

// Activations, with a fifth in the wide range where exp overflows or vanishes, a fifth where units bend, and the edges
// of the clamped one.
Reals unit_input(Random &random, size_t rows, size_t n, size_t first_character) {
    constexpr double kEdges[] = {7, -7, 7.0000005, -7.0000005, -1, 0, -0.0};
    Reals x = activations(random, rows, n, first_character);
    for (size_t i = 0; i < x.size(); i++) {
        const double part = random.uniform() - 0.5;
        if (i % 5 == 0) x[i] = static_cast<float>(200 * part);
        if (i % 5 == 1) x[i] = static_cast<float>(20 * part);
        if (i % 15 == 2) x[i] = static_cast<float>(kEdges[random.below(7)]);
    }
    return x;
}

void try_glu(Trial &trial, GluKind kind, uint32_t n, uint32_t per_row) {
    Problem p;
    Glu op{add_value(p, "gate", n, per_row), add_value(p, "up", n, per_row), add_value(p, "out", n, per_row), kind};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("{} n={}, {} rows per token", name(kind), n, per_row);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n](Problem &q) {
        Random random(n);
        const Reals gate = unit_input(random, q.rows(op.gate), n, 0), up = unit_input(random, q.rows(op.up), n, 3);
        const Reals want = glu(op.kind, gate, up);
        q.inputs = {{op.gate, gate}, {op.up, up}};
        q.expect(op.out, want, [=](Order, size_t i) { return bound::glu(op.kind, gate[i], up[i], want[i]); });
    };
    trial.run(p);
}

void try_scale(Trial &trial, uint32_t n, float scale, float cap) {
    Problem p;
    const Scale op{add_value(p, "x", n), add_value(p, "out", n), scale, cap};
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={} scale={} cap={}", n, scale, cap);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n](Problem &q) {
        Random random(n);
        // Up to where tanh is 1: the outliers among them, and some far beyond.
        Reals x = activations(random, q.rows(op.x), n), want;
        for (size_t i = 0; i < x.size(); i += 7) x[i] = static_cast<float>(std::ldexp(x[i], 50));
        for (size_t i = 3; i < x.size(); i += 7) x[i] = static_cast<float>(x[i] * 20);
        for (const double v : x) {
            const double scaled = v * static_cast<double>(op.scale);  // exact in double
            want.push_back(op.softcap > 0 ? oracle::softcap(scaled, op.softcap) : static_cast<float>(scaled));
        }
        std::function<double(Order, size_t)> bound;
        if (op.softcap > 0) bound = [op](Order, size_t) { return bound::softcap(op.softcap); };
        q.inputs.push_back({op.x, std::move(x)});
        q.expect(op.out, std::move(want), std::move(bound));
    };
    trial.run(p);
}

void try_row_gate(Trial &trial, uint32_t n) {
    Problem p;
    RowGate op;
    op.x = add_value(p, "x", n), op.gate = add_value(p, "gate", 1), op.out = add_value(p, "out", n);
    p.program.nodes = {{op, 0, 0}};
    p.name = fmt::format("n={}", n);
    p.steps = step_sizes(trial);
    p.plain_tokens(p.steps.back());
    p.fill = [op, n](Problem &q) {
        Random random(n);
        const Reals x = activations(random, q.rows(op.x), n), gate = unit_input(random, q.rows(op.gate), 1, 0);
        Reals want(x.size());
        for (size_t i = 0; i < want.size(); i++) want[i] = x[i] * oracle::sigmoid(gate[i / n]);
        q.inputs = {{op.x, x}, {op.gate, gate}};
        q.expect(op.out, want, [=](Order, size_t i) { return bound::row_gate(gate[i / n], want[i]); });
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
    for (const uint32_t n : {1u, 5u, 16u, 40u, 127u, 576u, 1027u, 2080u, 4128u, 8224u, 16416u})
        try_rmsnorm(trial, n, 1, 1, 1e-5f);
    try_rmsnorm(trial, 64, 9, 1, 1e-6f);
    try_rmsnorm(trial, 40, 3, 2, 1e-6f);
    for (const uint32_t width : {24u, 192u, 600u, 1056u}) try_rmsnorm(trial, width, 4, 1, 1e-6f);
}

void try_add_rmsnorm(Trial &trial) {
    if (!trial.wants(kind<AddRmsNorm>())) return;
    for (const uint32_t n : {1u, 16u, 40u, 127u, 576u, 1027u, 2080u, 4128u, 8224u, 16416u})
        for (const float scale : {1.0f, 0.22f})
            for (const uint32_t slots : {0u, 1u, 3u, 11u}) try_add_rmsnorm(trial, n, 1e-5f, scale, slots);
}

void try_quantize(Trial &trial) {
    if (!trial.wants(kind<Quantize>())) return;
    for (const uint32_t k : {32u, 64u, 96u, 288u, 1056u, 2560u}) try_quantize(trial, k, 1);
    try_quantize(trial, 96, 3);
}

void try_elementwise(Trial &trial) {
    for (const uint32_t n : {1u, 7u, 16u, 33u, 576u, 1029u}) {
        const uint32_t per_row = n == 33 ? 3 : 1;
        if (trial.wants(kind<Add>()))
            for (const float scale : {1.0f, 0.22f}) try_add(trial, n, scale);
        if (trial.wants(kind<Glu>()))
            for (const GluKind unit : {GluKind::silu, GluKind::gelu, GluKind::clamped})
                try_glu(trial, unit, n, per_row);
        if (trial.wants(kind<Scale>())) {
            try_scale(trial, n, 0.37f, 0), try_scale(trial, n, 1, 30);
            try_scale(trial, n, 0.37f, 2.5f);
        }
        if (trial.wants(kind<RowGate>())) try_row_gate(trial, n);
        if (trial.wants(kind<GatherRows>())) try_gather_rows(trial, n);
    }
}

}  // namespace ridge::gate
