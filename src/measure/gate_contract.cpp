// Problems for contract and gate_up: formats x shapes x inputs, with and without experts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "measure/gate_problems.h"
#include "op/bound.h"

namespace ridge::gate {
namespace {

// One product of a weight matrix with a vector, and what its bound needs.
struct Product {
    Reals sum, magnitude, factors;  // (rows, n); factors with q8 and float weights
    size_t terms = 0;               // per sum: k, or groups (twice where there is a bias)
    Reals elements, small;          // (rows, n), with q8: what bound::contract_f16 wants, over the k elements
    size_t k = 0;
    enum class Kind : uint8_t { f32, bf16, int8 } kind = Kind::f32;

    double bound(Order order, size_t i, bool bias) const {
        if (order == Order::f16_mma) return bound::contract_f16(k, elements[i], small[i], bias);
        if (order == Order::tf32_split) return bound::contract_tf32(terms, magnitude[i], factors[i], bias);
        if (kind == Kind::bf16) return bound::contract_bf16(order, terms, magnitude[i], factors[i], bias);
        return kind == Kind::int8 ? bound::contract_int8(order, terms, magnitude[i], factors[i], bias)
                                  : bound::contract_f32(order, terms, magnitude[i], bias);
    }
};

// Row r of x, and expert, for each of the output rows.
struct Routing {
    std::vector<size_t> x_row;
    std::vector<int32_t> expert;
};

// x: (rows, k). Output row r is expert[r] of the weight applied to x_row[r].
Product float_product(const Weight &w, const DecodedWeight &d, RealSpan x, const Routing &to) {
    const size_t n = w.n, k = w.k, rows = to.expert.size();
    Reals in(rows * k);
    for (size_t r = 0; r < rows; r++) std::copy_n(&x[to.x_row[r] * k], k, &in[r * k]);
    oracle::Sums s = oracle::contract({rows, n, k, w.experts, 1}, d.value, in, to.expert);
    Reals factors(info(w.format).is_float() ? rows * n : 0);
    for (size_t i = 0; i < factors.size(); i++)
        for (size_t j = 0; j < k; j++)
            factors[i] += std::fabs(d.value[(static_cast<size_t>(to.expert[i / n]) * n + i % n) * k + j]) +
                          std::fabs(in[i / n * k + j]) + 1;
    return {std::move(s.sum), std::move(s.magnitude), std::move(factors), k};
}

// The same with x rounded to bf16: eight significant bits, ties to even. Empty where no row does so: of other formats.
Product bf16_product(const Weight &w, const DecodedWeight &d, RealSpan x, const Routing &to) {
    if (w.format != Format::BF16) return {};
    Reals rounded(x.begin(), x.end());
    for (double &v : rounded) {
        int exponent;
        const double fraction = std::frexp(v, &exponent);
        v = std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
    }
    Product p = float_product(w, d, rounded, to);
    p.kind = Product::Kind::bf16;
    return p;
}

// x: (rows, width) of q8.
Product int8_product(const Weight &w, const DecodedWeight &d, RealSpan x, const Routing &to) {
    const size_t n = w.n, k = w.k, stride = width(DType::q8, w.k), rows = to.expert.size();
    Product p;
    p.kind = Product::Kind::int8;
    // Integer dots are exact, so the terms are those of whole groups.
    p.terms = k / d.group * (d.has_bias ? 2 : 1);
    p.k = k;
    for (Reals *of : {&p.sum, &p.magnitude, &p.factors, &p.elements, &p.small}) of->resize(rows * n);
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < n; o++) {
            const size_t row = static_cast<size_t>(to.expert[r]) * n + o, out = r * n + o;
            const double *codes = &x[to.x_row[r] * stride], *scales = codes + k;
            // `factor`: what a subnormal rounding of the product with the scale of x is multiplied by.
            auto add = [&](double scale, double integer, double factor) {
                p.sum[out] += scale * integer;
                p.magnitude[out] += std::fabs(scale * integer);
                p.factors[out] += std::fabs(factor);
            };
            double all_x = 0, all_w = 0, largest = 0;
            for (size_t j = 0; j < k; j++) {
                const double xj = std::fabs(codes[j] * scales[j / 32]), wj = std::fabs(d.value[row * k + j]);
                p.elements[out] += xj * wj;
                all_x += xj, all_w += wj, largest = std::max(largest, 127 * scales[j / 32]);
            }
            p.small[out] = 0x1p-25 * (all_x + std::max(0x1p-13 * largest, 0x1p-110) * all_w);
            for (size_t g = 0; g < k; g += d.group) {
                double dot = 0, sum = 0;
                for (size_t j = g; j < g + d.group; j++) {
                    const size_t i = row * k + j;
                    RIDGE_ASSERT(d.scale[i] == d.scale[row * k + g]);
                    dot += d.code[i] * codes[j], sum += codes[j];
                }
                add(d.scale[row * k + g] * scales[g / 32], dot, dot);
                if (d.has_bias) add(d.bias[row * k + g] * scales[g / 32], sum, d.bias[row * k + g]);
            }
        }
    return p;
}

// The product of a weight with x, as rows make it that take x as it is, and those that round it to bf16.
struct Products {
    Product plain, bf16;
    const Product &of(Order o) const { return o == Order::bf16_pairs16 ? bf16 : plain; }
};
Products products(const Weight &w, DType type, RealSpan x, const Routing &to) {
    const DecodedWeight d = decode(w);
    if (type == DType::q8) return {int8_product(w, d, x, to), {}};
    return {float_product(w, d, x, to), bf16_product(w, d, x, to)};
}

enum class Experts : uint8_t {
    none,
    few,       // more routed rows than experts; one expert is never chosen
    per_slot,  // x has a row per slot; the first tokens choose the same expert in every slot
    many,      // more experts than routed rows
};

struct Shape {
    std::string name;
    uint32_t k = 32;
    std::vector<uint32_t> n;      // of each bank
    std::vector<Format> formats;  // of each bank
    uint32_t biases = 0;          // bit b: bank b has one
    Experts experts = Experts::none;
    bool outputs_only = false;  // x holds wanted rows, not tokens
    std::vector<uint32_t> steps;
    size_t first_character = 0;
};

struct Moe {
    uint32_t experts = 1, slots = 1;
};
Moe moe_of(Experts e) {
    switch (e) {
        case Experts::few:
            return {5, 2};
        case Experts::per_slot:
            return {4, 3};
        case Experts::many:
            return {40, 2};
        case Experts::none:
            break;
    }
    return {};
}

// Experts of each token. Distinct within a token, but for per_slot's first tokens, which load one expert with all.
Reals choose_experts(Random &random, Experts kind, size_t tokens) {
    const Moe moe = moe_of(kind);
    Reals ids;
    for (size_t t = 0; t < tokens; t++) {
        const uint32_t first = random.below(moe.experts);
        for (uint32_t s = 0; s < moe.slots; s++) {
            uint32_t e = (first + s) % moe.experts;
            if (kind == Experts::few && e == 3) e = (first + moe.slots) % moe.experts;
            if (kind == Experts::per_slot && t < 5) e = 2;
            ids.push_back(e);
        }
    }
    return ids;
}

// The values of a contraction in its program.
struct Frame {
    ValueId x = kNone, ids = kNone;
    Value out;  // a pattern: name and cols are to be set
};

Frame frame(Problem &p, const Shape &s, DType input) {
    const Moe moe = moe_of(s.experts);
    const Rows rows = s.outputs_only ? Rows::outputs : Rows::tokens;
    Frame f;
    f.x = p.program.add_value({"x", input, rows, s.experts == Experts::per_slot ? moe.slots : 1, s.k});
    if (s.experts != Experts::none) f.ids = p.program.add_value({"ids", DType::i32, Rows::tokens, 1, moe.slots});
    f.out = {"out", DType::f32, rows, moe.slots, 0};
    p.steps = s.steps;
    p.plain_tokens(s.steps.back());
    if (s.outputs_only)
        for (size_t i = 0; i < p.tokens.size(); i++) p.tokens[i].wanted = i % 3 == 1;
    p.name = fmt::format("{} k={} {} input", s.name, s.k, name(input));
    return f;
}

WeightId add_matrix(Problem &p, const Shape &s, size_t bank) {
    Weight w;
    w.name = fmt::format("w{}", bank);
    w.format = s.formats[bank], w.n = s.n[bank], w.k = s.k, w.experts = moe_of(s.experts).experts;
    p.name += fmt::format(" {} n={}", info(w.format).name, w.n);
    return p.program.add_weight(w);
}

// Fills x and ids and says which rows meet.
Routing fill_inputs(Problem &p, const Shape &s, const Frame &f, Random &random) {
    const Value &x = p.program.value(f.x);
    const Moe moe = moe_of(s.experts);
    const size_t rows = p.rows(f.x);
    Reals numbers = activations(random, rows, s.k, s.first_character);
    if (x.type == DType::q8) numbers = quantize(rows, s.k, numbers);
    p.inputs.push_back({f.x, std::move(numbers)});
    Routing to;
    if (f.ids == kNone) {
        for (size_t r = 0; r < rows; r++) to.x_row.push_back(r), to.expert.push_back(0);
        return to;
    }
    Reals ids = choose_experts(random, s.experts, p.tokens.size());
    for (size_t r = 0; r < ids.size(); r++) {
        to.x_row.push_back(s.experts == Experts::per_slot ? r : r / moe.slots);
        to.expert.push_back(static_cast<int32_t>(ids[r]));
    }
    p.inputs.push_back({f.ids, std::move(ids)});
    return to;
}

uint64_t seed_of(const Shape &s) { return s.k * 1000 + s.n[0] * 10 + static_cast<uint64_t>(s.formats[0]) * 1000003; }

void try_contract(Trial &trial, const Shape &s, DType input) {
    Problem p;
    const Frame f = frame(p, s, input);
    Contract op{f.x, f.ids, static_cast<uint32_t>(s.n.size()), {}};
    for (uint32_t b = 0; b < op.n_banks; b++) {
        Bank &bank = op.banks[b];
        bank.weight = add_matrix(p, s, b);
        if (s.biases >> b & 1) {
            const uint32_t experts = moe_of(s.experts).experts;
            bank.bias = p.program.add_weight({fmt::format("bias{}", b), Format::F32, 1, s.n[b], experts, nullptr});
            p.name += " bias";
        }
        Value out = f.out;
        out.name = fmt::format("out{}", b), out.cols = s.n[b];
        bank.out = p.program.add_value(out);
    }
    p.program.nodes = {{op, 0, 0}};
    p.fill = [&, op](Problem &q) {
        Random random(seed_of(s));
        const Routing to = fill_inputs(q, s, f, random);
        for (uint32_t b = 0; b < op.n_banks; b++) {
            const Bank &bank = op.banks[b];
            q.set_weight(bank.weight, random_weight(random, q.program.weight(bank.weight)));
            const Weight &w = q.program.weight(bank.weight);
            Products y = products(w, input, q.inputs[0].numbers, to);
            const bool has_bias = bank.bias != kNone;
            if (has_bias) {
                const Reals bias = normals(random, size_t{w.experts} * w.n);
                q.set_weight(bank.bias, f32_weight(bias));
                for (Product *z : {&y.plain, &y.bf16})
                    for (size_t i = 0; i < z->sum.size(); i++) {
                        const double b_i = bias[static_cast<size_t>(to.expert[i / w.n]) * w.n + i % w.n];
                        z->sum[i] += b_i, z->magnitude[i] += std::fabs(b_i);
                        // The one rounding of the last sum.
                        if (!z->small.empty()) z->small[i] += bound::gamma(2) * std::fabs(b_i);
                    }
            }
            Reals want = y.plain.sum, want_bf16 = y.bf16.sum;
            auto bound = [y = std::move(y), has_bias](Order o, size_t i) { return y.of(o).bound(o, i, has_bias); };
            q.expect(bank.out, std::move(want), std::move(bound), std::move(want_bf16));
        }
    };
    trial.run(p);
}

void try_gate_up(Trial &trial, const Shape &s, DType input, GluKind unit) {
    Problem p;
    const Frame f = frame(p, s, input);
    p.name += fmt::format(" {}", name(unit));
    GateUp op;
    op.x = f.x, op.ids = f.ids, op.kind = unit;
    op.gate = add_matrix(p, s, 0), op.up = add_matrix(p, s, 1);
    Value out = f.out;
    out.cols = s.n[0];
    op.out = p.program.add_value(out);
    p.program.nodes = {{op, 0, 0}};
    p.fill = [&, op](Problem &q) {
        Random random(seed_of(s));
        const Routing to = fill_inputs(q, s, f, random);
        auto multiply = [&](WeightId id) {
            q.set_weight(id, random_weight(random, q.program.weight(id)));
            const Weight &w = q.program.weight(id);
            return products(w, input, q.inputs[0].numbers, to);
        };
        Products gate = multiply(op.gate), up = multiply(op.up);
        const Reals want = glu(op.kind, gate.plain.sum, up.plain.sum);
        Reals want_bf16 = {};
        if (gate.bf16.sum.size() == up.bf16.sum.size()) want_bf16 = glu(op.kind, gate.bf16.sum, up.bf16.sum);
        auto bound = [=, unit = op.kind, gate = std::move(gate), up = std::move(up)](Order o, size_t i) {
            const Product &g = gate.of(o), &u = up.of(o);
            return bound::gate_up(unit, g.sum[i], g.bound(o, i, false), u.sum[i], u.bound(o, i, false),
                                  o == Order::bf16_pairs16 ? want_bf16[i] : want[i]);
        };
        q.expect(op.out, want, std::move(bound), want_bf16);
    };
    trial.run(p);
}

// Formats that may share a launch with f, f first: block formats with block formats whose block divides k.
std::vector<Format> partners(Format f, uint32_t k, size_t count) {
    std::vector<Format> all, chosen;
    for (const FormatInfo &i : all_formats())
        if (i.is_float() == info(f).is_float() && k % i.block == 0) all.push_back(i.id);
    const auto at = static_cast<size_t>(std::find(all.begin(), all.end(), f) - all.begin());
    for (size_t i = 0; i < count; i++) chosen.push_back(all[(at + i) % all.size()]);
    return chosen;
}

std::vector<uint32_t> step_sizes(bool quick) {
    if (quick) return {1, 2, 3, 4, 5, 8, 9, 33};
    return {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 33, 64, 70, 130};
}

std::vector<Shape> shapes(Format f, bool quick) {
    const FormatInfo &i = info(f);
    const bool floats = i.is_float();
    const uint32_t one = floats ? 17 : i.block, several = floats ? 100 : i.block == 32 ? 288 : 768;
    const uint32_t many = floats ? 1003 : i.block == 32 ? 1056 : 1280;
    const std::vector<uint32_t> all = step_sizes(quick), some = quick ? std::vector<uint32_t>{1, 4, 13}
                                                                      : std::vector<uint32_t>{1, 2, 5, 8, 9, 16, 40};
    std::vector<Shape> s = {
        {"one block", one, {3}, {f}, 1, Experts::none, false, all, 0},
        {"two banks", several, {17, 5}, partners(f, several, 2), 2, Experts::none, false, some, 1},
        {"three banks", 256, {1, 40, 7}, partners(f, 256, 3), 5, Experts::none, false, some, 2},
        {"outputs", several, {19}, {f}, 0, Experts::none, true, some, 0},
        {"experts", 256, {18}, {f}, 1, Experts::few, false, some, 3},
        {"experts, x per slot", several, {5}, {f}, 0, Experts::per_slot, false, some, 4},
        {"many experts", one, {6}, {f}, 1, Experts::many, false, {1, 2, 3, 7}, 1},
    };
    if (quick) {
        s.push_back({"long", many, {9}, {f}, 0, Experts::none, false, {1, 9, 33}, 0});
    } else {
        s.push_back({"long", many, {66}, {f}, 0, Experts::none, false, all, 0});
        s.push_back({"one row", several, {1}, {f}, 0, Experts::none, false, all, 5});
        if (floats) s.push_back({"k = 1", 1, {33}, {f}, 1, Experts::none, false, some, 0});
        s.push_back({"three experts", several, {20, 3, 33}, partners(f, several, 3), 2, Experts::few, false, some, 2});
    }
    return s;
}

template <class Try>
void each_shape(Trial &trial, OpKind op, Try &&attempt) {
    if (!trial.wants(op)) return;
    for (const FormatInfo &f : all_formats()) {
        if (!trial.wants(f.id)) continue;
        for (const Shape &s : shapes(f.id, trial.options().quick)) {
            attempt(s, DType::f32);
            if (s.k % 32 == 0) attempt(s, DType::q8);
        }
    }
}

}  // namespace

void try_contract(Trial &trial) {
    each_shape(trial, kind<Contract>(), [&](const Shape &s, DType input) { try_contract(trial, s, input); });
}

// Every unit in turn, so that each meets every format, and both plain and routed rows.
void try_gate_up(Trial &trial) {
    constexpr GluKind kUnits[] = {GluKind::silu, GluKind::gelu, GluKind::clamped};
    size_t turn = 0;
    each_shape(trial, kind<GateUp>(), [&](Shape s, DType input) {
        if (s.n.size() == 3) return;
        // Both of one format where the shape has one, else two.
        s.formats = s.formats.size() == 1 ? std::vector<Format>(2, s.formats[0]) : partners(s.formats[0], s.k, 2);
        // Some can be published.
        const uint32_t n = s.n.size() == 2 ? 96 : s.experts == Experts::few ? 32 : s.n[0];
        s.n.assign(2, n);
        try_gate_up(trial, s, input, kUnits[turn++ % 3]);
    });
}

}  // namespace ridge::gate
