// The planted mistakes: wrong launches of right rows, and the wrong rows of wrong_rows.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "gate/mutant.h"
#include "gate/wrong_rows.h"

namespace ridge::test {
namespace {

using Alter = std::function<void(Altered &)>;

// ---- Steps

void skip_last_token(Altered &a) {
    a.words[0]--;
    while (a.words[1] > 0 && a.output()[a.words[1] - 1] >= a.words[0]) a.words[1]--;
}
void shift_positions(Altered &a, int by) {
    for (uint32_t i = 0; i < a.tokens(); i++)
        if (a.position()[i] + by >= 0) a.position()[i] += by;
}
void position_too_low(Altered &a) { shift_positions(a, -1); }
void position_too_high(Altered &a) {
    // Only inside a page: another page may not exist.
    for (uint32_t i = 0; i < a.tokens(); i++)
        if (a.position()[i] % kPageTokens != kPageTokens - 1) a.position()[i]++;
}
void identity_pages(Altered &a) {
    for (uint32_t s = 0; s < a.limits.sequences; s++)
        for (uint32_t i = 0; i < a.limits.pages; i++) a.pages(s)[i] = static_cast<int32_t>(i);
}
void first_page_for_all(Altered &a) {
    for (uint32_t s = 0; s < a.limits.sequences; s++)
        for (uint32_t i = 1; i < a.limits.pages; i++) a.pages(s)[i] = a.pages(s)[0];
}
void first_sequence_for_all(Altered &a) {
    for (uint32_t i = 0; i < a.tokens(); i++) a.sequence()[i] = a.sequence()[0];
}

// ---- Values

// Every row of v turned left by n numbers.
template <class T>
void rotate_rows(T *x, size_t rows, size_t cols, size_t n) {
    for (size_t r = 0; r < rows; r++) std::rotate(x + r * cols, x + r * cols + n % cols, x + (r + 1) * cols);
}
// Row r reads row r + 1, the last the first.
template <class T>
void rotate_table(T *x, size_t rows, size_t cols) {
    if (rows > 0) std::rotate(x, x + cols, x + rows * cols);
}
void rotate_weight_rows(Altered &a, WeightId w) {
    const Weight &x = a.program.weight(w);
    rotate_table(a.own_weight(w), size_t{x.n} * x.experts, row_bytes(x.format, x.k));
}
void rotate_weight(Altered &a, WeightId w) {
    rotate_rows(reinterpret_cast<float *>(a.own_weight(w)), 1, a.program.weight(w).k, 1);
}

// ---- contract and gate_up: T names one of them

template <class T>
WeightId first_weight(Altered &a) {
    if constexpr (std::is_same_v<T, Contract>)
        return a.as<Contract>().banks[0].weight;
    else
        return a.as<GateUp>().gate;
}

template <class T>
void drop_last_block(Altered &a) {
    const ValueId x = a.as<T>().x;
    const size_t k = a.cols(x), n = std::min<size_t>(k, 32);
    if (a.program.value(x).type == DType::f32) {
        float *v = a.own_f32(x);
        for (size_t r = 0; r < a.rows(x); r++) std::fill_n(v + (r + 1) * k - n, n, 0.0f);
        return;
    }
    const Q8View q = a.own_q8(x);
    for (size_t r = 0; r < a.rows(x); r++) {
        std::fill_n(q.codes + (r + 1) * k - n, n, int8_t{0});
        std::fill_n(q.sums + (r + 1) * (k / 16) - 2, 2, int16_t{0});
    }
}
template <class T>
void swap_tokens(Altered &a) {
    const ValueId x = a.as<T>().x;
    if (a.rows(x) < 2) return;
    if (a.program.value(x).type == DType::f32) return rotate_table(a.own_f32(x), 2, a.cols(x));
    const Q8View q = a.own_q8(x);
    const size_t k = a.cols(x);
    rotate_table(q.codes, 2, k), rotate_table(q.scale, 2, k / 32), rotate_table(q.sums, 2, k / 16);
}
template <class T>
void next_expert(Altered &a) {
    const ValueId ids = a.as<T>().ids;
    if (ids != kNone) rotate_table(a.own_i32(ids), a.rows(ids), a.cols(ids));
}
template <class T>
void next_weight_row(Altered &a) {
    rotate_weight_rows(a, first_weight<T>(a));
}
template <class T>
void previous_scale(Altered &a) {
    const ValueId x = a.as<T>().x;
    const Q8View q = a.own_q8(x);
    rotate_rows(q.scale, a.rows(x), a.cols(x) / 32, a.cols(x) / 32 - 1);
}
template <class T>
void no_sums(Altered &a) {
    const ValueId x = a.as<T>().x;
    std::fill_n(a.own_q8(x).sums, a.rows(x) * (a.cols(x) / 16), int16_t{0});
}
template <class T>
void swapped_sums(Altered &a) {
    const ValueId x = a.as<T>().x;
    const Q8View q = a.own_q8(x);
    rotate_rows(q.sums, a.rows(x) * (a.cols(x) / 32), 2, 1);
}
// One code of the whole row is off by one.
template <class T>
void one_code(Altered &a) {
    const ValueId x = a.as<T>().x;
    const Q8View q = a.own_q8(x);
    for (size_t r = 0; r < a.rows(x); r++)
        q.codes[r * a.cols(x) + 7] = static_cast<int8_t>(q.codes[r * a.cols(x) + 7] ^ 1);
}
void cut_to_bf16(float &v) {
    auto bits = __builtin_bit_cast(uint32_t, v) & 0xffff0000u;
    v = __builtin_bit_cast(float, bits);
}
template <class T>
void bf16_activations(Altered &a) {
    const ValueId x = a.as<T>().x;
    float *v = a.own_f32(x);
    std::for_each(v, v + a.rows(x) * a.cols(x), cut_to_bf16);
}
// Within every bound, but not the same in all steps: each x is one ulp larger where there are many tokens.
template <class T>
void other_bits_for_many(Altered &a) {
    const ValueId x = a.as<T>().x;
    if (a.tokens() < 9) return;
    float *v = a.own_f32(x);
    // The next number, of bf16 for a row that rounds x to that.
    const uint32_t step = a.program.weight(first_weight<T>(a)).format == Format::BF16 ? 1u << 16 : 1;
    for (size_t i = 0; i < a.rows(x) * a.cols(x); i++)
        if (v[i] > 1e-30f) v[i] = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, v[i]) + step);
}
void no_bias(Altered &a) {
    for (Bank &b : a.as<Contract>().banks) b.bias = kNone;
}
void bias_of_expert_0(Altered &a) {
    const auto &op = a.as<Contract>();
    for (uint32_t b = 0; b < op.n_banks; b++) {
        if (op.banks[b].bias == kNone) continue;
        const Weight &w = a.program.weight(op.banks[b].bias);
        std::byte *x = a.own_weight(op.banks[b].bias);
        for (uint32_t e = 1; e < w.experts; e++) std::memcpy(x + e * w.k * sizeof(float), x, w.k * sizeof(float));
    }
}
void bias_of_next_expert(Altered &a) {
    for (const Bank &b : a.as<Contract>().banks)
        if (b.bias != kNone) rotate_weight_rows(a, b.bias);
}
void gate_for_up(Altered &a) { a.as<GateUp>().up = a.as<GateUp>().gate; }
void other_unit(Altered &a, GluKind is, GluKind taken) {
    GluKind &unit = a.op.index() == kind<GateUp>() ? a.as<GateUp>().kind : a.as<Glu>().kind;
    if (unit == is) unit = taken;
}

template <class T>
void add_matrix_mutants(std::vector<Mutant> &m) {
    constexpr OpKind k = kind<T>();
    for (const DType input : {DType::f32, DType::q8}) {
        auto add = [&](const char *name, Alter alter, Format f = Format::Q4_K) {
            m.push_back({name, k, std::move(alter), nullptr, input, f});
        };
        add("drops the last 32 of k", drop_last_block<T>);
        add("swaps two tokens", swap_tokens<T>);
        add("takes the next token's expert", next_expert<T>);
        add("takes the next weight row", next_weight_row<T>);
        add("skips the last token", skip_last_token);
        if (input == DType::f32) {
            add("cuts x to bf16", bf16_activations<T>);
            add("gives other bits in larger steps", other_bits_for_many<T>);
            continue;
        }
        add("takes the previous block's scale of x", previous_scale<T>);
        add("forgets the format's bias", no_sums<T>);
        add("swaps the sums of a block", swapped_sums<T>, Format::Q2_K);
        add("has one code wrong", one_code<T>);
    }
}

// ---- The other operations

void add_row_mutants(std::vector<Mutant> &m) {
    auto add = [&](OpKind op, const char *name, Alter alter) { m.push_back({name, op, std::move(alter)}); };
    add(kind<Embed>(), "takes the next token's row", [](Altered &a) { rotate_table(a.token(), a.tokens(), 1); });
    add(kind<Embed>(), "forgets the scale", [](Altered &a) { a.as<Embed>().scale = 1; });
    add(kind<RmsNorm>(), "forgets eps", [](Altered &a) { a.as<RmsNorm>().eps = 0; });
    add(kind<RmsNorm>(), "takes the next weight", [](Altered &a) { rotate_weight(a, a.as<RmsNorm>().weight); });
    add(kind<RmsNorm>(), "skips the last token", skip_last_token);
    add(kind<AddRmsNorm>(), "forgets the scale", [](Altered &a) { a.as<AddRmsNorm>().scale = 1; });
    // With slots, b has more rows than a.
    add(kind<AddRmsNorm>(), "scales the wrong operand", [](Altered &a) {
        auto &op = a.as<AddRmsNorm>();
        if (op.slots == kNone) std::swap(op.a, op.b);
    });
    add(kind<AddRmsNorm>(), "adds a to itself", [](Altered &a) {
        auto &op = a.as<AddRmsNorm>();
        if (op.slots == kNone) op.b = op.a;
    });
    add(kind<AddRmsNorm>(), "takes the next slot's weight", [](Altered &a) {
        const ValueId w = a.as<AddRmsNorm>().slots;
        if (w != kNone) rotate_rows(a.own_f32(w), a.rows(w), a.cols(w), 1);
    });
    add(kind<AddRmsNorm>(), "takes the next weight", [](Altered &a) { rotate_weight(a, a.as<AddRmsNorm>().weight); });
    add(kind<Quantize>(), "skips the last token", skip_last_token);
    add(kind<Add>(), "adds a to itself", [](Altered &a) { a.as<Add>().b = a.as<Add>().a; });
    add(kind<Add>(), "forgets the scale", [](Altered &a) { a.as<Add>().scale = 1; });
    add(kind<Add>(), "scales the wrong operand", [](Altered &a) { std::swap(a.as<Add>().a, a.as<Add>().b); });
    add(kind<Glu>(), "swaps gate and up", [](Altered &a) { std::swap(a.as<Glu>().gate, a.as<Glu>().up); });
    add(kind<Scale>(), "forgets the scale", [](Altered &a) { a.as<Scale>().scale = 1; });
    add(kind<Scale>(), "forgets the cap", [](Altered &a) { a.as<Scale>().softcap = 0; });
    add(kind<Scale>(), "skips the last token", skip_last_token);
    add(kind<RowGate>(), "takes the next token's gate", [](Altered &a) {
        const ValueId gate = a.as<RowGate>().gate;
        rotate_table(a.own_f32(gate), a.rows(gate), 1);
    });
    add(kind<RowGate>(), "skips the last token", skip_last_token);
    add(kind<GatherRows>(), "takes the row before", [](Altered &a) {
        for (int32_t j = 0; j < a.words[1]; j++) a.output()[j] = std::max(0, a.output()[j] - 1);
    });
    add(kind<ArgMax>(), "takes the row before", [](Altered &a) {
        const ValueId x = a.as<ArgMax>().x;
        rotate_table(a.own_f32(x), a.rows(x), a.cols(x));
    });
    add(kind<Sample>(), "takes the row before", [](Altered &a) {
        const ValueId x = a.as<Sample>().x;
        rotate_table(a.own_f32(x), a.rows(x), a.cols(x));
    });
    const auto add_draw = [&](const char *name, void (*change)(Draw &)) {
        add(kind<Sample>(), name, [change](Altered &a) {
            for (uint32_t r = 0; r < static_cast<uint32_t>(a.words[1]); r++) {
                Draw d = a.view().step.draw(r);
                change(d);
                a.set_draw(r, d);
            }
        });
    };
    add_draw("draws at temperature 1", [](Draw &d) { d.temperature = d.temperature > 0 ? 1 : 0; });
    add_draw("forgets top-p", [](Draw &d) { d.top_p = 1; });
    add_draw("forgets min-p", [](Draw &d) { d.min_p = 0; });
    add_draw("takes one more than top-k", [](Draw &d) { d.top_k++; });
    add_draw("takes one less than top-k", [](Draw &d) { d.top_k--; });
    add_draw("has 32 bits of the uniform number", [](Draw &d) {
        d.uniform = static_cast<float>(d.uniform) < 1 ? static_cast<float>(d.uniform) : d.uniform;
    });
    add_draw("draws from the other end", [](Draw &d) { d.uniform = 1 - 0x1p-53 - d.uniform; });
    add(kind<Sample>(), "takes the next output's draw", [](Altered &a) {
        for (uint32_t r = 0; r + 1 < static_cast<uint32_t>(a.words[1]); r++) a.set_draw(r, a.view().step.draw(r + 1));
    });
    add(kind<MoeCombine>(), "takes the next slot's weight", [](Altered &a) {
        const ValueId w = a.as<MoeCombine>().weights;
        rotate_rows(a.own_f32(w), a.rows(w), a.cols(w), 1);
    });
    add(kind<MoeRoute>(), "forgets to normalise", [](Altered &a) { a.as<MoeRoute>().normalize = false; });
    add(kind<MoeRoute>(), "takes the next expert's logit", [](Altered &a) {
        const ValueId x = a.as<MoeRoute>().logits;
        rotate_rows(a.own_f32(x), a.rows(x), a.cols(x), 1);
    });
}

// One unit for another, in both operations that have them.
void add_unit_mutants(std::vector<Mutant> &m) {
    using enum GluKind;
    for (const DType input : {DType::f32, DType::q8})
        for (const OpKind op : {kind<Glu>(), kind<GateUp>()}) {
            if (op == kind<Glu>() && input == DType::q8) continue;
            auto add = [&](const char *name, GluKind is, GluKind taken) {
                m.push_back({name, op, [=](Altered &a) { other_unit(a, is, taken); }, nullptr, input});
            };
            add("takes silu for gelu", gelu, silu);
            add("takes gelu for silu", silu, gelu);
            add("takes silu for the clamped unit", clamped, silu);
        }
}

template <class T>
void other_pairs(Altered &a) {
    auto &op = a.as<T>();
    op.pairs = op.pairs == RopePairs::halves ? RopePairs::adjacent : RopePairs::halves;
}

void add_sink_mutants(std::vector<Mutant> &m) {
    // `change` gets the sinks of a launch that has some.
    auto add = [&](const char *name, void (*change)(const Attention &, float *sinks)) {
        m.push_back({name, kind<Attention>(), [=](Altered &a) {
                         const Attention &op = a.as<Attention>();
                         if (op.sinks != kNone) change(op, reinterpret_cast<float *>(a.own_weight(op.sinks)));
                     }});
    };
    m.push_back({"forgets the sinks", kind<Attention>(), [](Altered &a) { a.as<Attention>().sinks = kNone; }});
    add("takes the next head's sink", [](const Attention &op, float *s) { std::rotate(s, s + 1, s + op.heads); });
    add("takes one sink for all heads", [](const Attention &op, float *s) { std::fill_n(s + 1, op.heads - 1, s[0]); });
    add("takes the sinks of the first group", [](const Attention &op, float *s) {
        const uint32_t group = op.heads / op.kv_heads;
        for (uint32_t h = group; h < op.heads; h++) s[h] = s[h % group];
    });
    add("scales the sinks", [](const Attention &op, float *s) {
        for (uint32_t h = 0; h < op.heads; h++) s[h] *= op.scale;
    });
    add("takes sinks for weights", [](const Attention &op, float *s) {
        for (uint32_t h = 0; h < op.heads; h++) s[h] = std::log(std::fabs(s[h]) + 1e-6f);
    });
}

// Reads of q8_0 that go wrong: `change` gets one row's blocks.
void add_block_mutants(std::vector<Mutant> &m) {
    auto add = [&](const char *name, StateId Attention::*which, void (*change)(std::span<Q8Block> row)) {
        m.push_back({name, kind<Attention>(), [=](Altered &a) {
                         const StateId s = a.as<Attention>().*which;
                         const State &state = a.program.state(s);
                         if (state.type != DType::q8_0) return;
                         const std::span<std::byte> bytes = a.own_state(s);
                         const size_t row = row_bytes(state.type, state.cols), blocks = state.cols / 32;
                         for (size_t at = 0; at < bytes.size(); at += row)
                             change({reinterpret_cast<Q8Block *>(&bytes[at]), blocks});
                     }});
    };
    const auto previous_scale = [](std::span<Q8Block> row) {
        for (size_t b = row.size() - 1; b > 0; b--) std::swap(row[b].scale, row[b - 1].scale);
    };
    add("takes the previous scale of a key", &Attention::k_state, previous_scale);
    add("takes the previous scale of a value", &Attention::v_state, previous_scale);
    add("swaps the halves of a block of keys", &Attention::k_state, [](std::span<Q8Block> row) {
        for (Q8Block &b : row) std::rotate(b.codes, b.codes + 16, b.codes + 32);
    });
    add("has one code of a value wrong", &Attention::v_state,
        [](std::span<Q8Block> row) { row.back().codes[31] ^= 1; });
}

void add_state_mutants(std::vector<Mutant> &m) {
    auto add = [&](OpKind op, const char *name, Alter alter) { m.push_back({name, op, std::move(alter)}); };
    add(kind<RopeTable>(), "is a position behind", position_too_low);
    add(kind<RopeTable>(), "forgets the magnitude", [](Altered &a) { a.as<RopeTable>().magnitude = 1; });
    add(kind<RopeTable>(), "squares the magnitude",
        [](Altered &a) { a.as<RopeTable>().magnitude *= a.as<RopeTable>().magnitude; });
    add(kind<RopeTable>(), "forgets the temperature", [](Altered &a) { a.as<RopeTable>().temperature = 0; });
    add(kind<RopeTable>(), "takes the long frequencies",
        [](Altered &a) { a.as<RopeTable>().frequency = a.as<RopeTable>().long_frequency; });
    add(kind<Rope>(), "turns other pairs", other_pairs<Rope>);
    add(kind<Rope>(), "takes the next token's angles", [](Altered &a) {
        const ValueId t = a.as<Rope>().table;
        rotate_table(a.own_f32(t), a.rows(t), a.cols(t));
    });
    const OpKind write = kind<KvWrite>(), fused = kind<QkNormRope>(), attention = kind<Attention>();
    for (const OpKind op : {write, fused}) {
        add(op, "writes one slot too far", position_too_high);
        add(op, "uses the identity table", identity_pages);
        add(op, "writes to the first sequence", first_sequence_for_all);
        add(op, "skips the last token", skip_last_token);
    }
    add(write, "swaps k and v", [](Altered &a) {
        auto &op = a.as<KvWrite>();
        if (a.cols(op.k) == a.cols(op.v)) std::swap(op.k, op.v);
    });
    add(fused, "turns other pairs", other_pairs<QkNormRope>);
    add(fused, "forgets the norm of q", [](Altered &a) { a.as<QkNormRope>().q_norm = kNone; });
    add(fused, "forgets the norm of k", [](Altered &a) { a.as<QkNormRope>().k_norm = kNone; });
    add(attention, "misses the last position", position_too_low);
    add(attention, "looks one position too far", position_too_high);
    add(attention, "uses the identity table", identity_pages);
    add(attention, "reads the first page only", first_page_for_all);
    add(attention, "reads the first sequence", first_sequence_for_all);
    add(attention, "ignores the window", [](Altered &a) { a.as<Attention>().window = 0; });
    add(attention, "has the window one too wide", [](Altered &a) {
        if (a.as<Attention>().window > 0) a.as<Attention>().window++;
    });
    add(attention, "has the window one too narrow", [](Altered &a) {
        if (a.as<Attention>().window > 1) a.as<Attention>().window--;
    });
    add(attention, "forgets the cap", [](Altered &a) { a.as<Attention>().softcap = 0; });
    add(attention, "scales after the cap", [](Altered &a) { a.as<Attention>().softcap *= a.as<Attention>().scale; });
    add(attention, "has the cap off by 0.1%", [](Altered &a) { a.as<Attention>().softcap *= 1.001f; });
    add_sink_mutants(m);
    add(attention, "has the scale off by 0.1%", [](Altered &a) { a.as<Attention>().scale *= 1.001f; });
    add(attention, "takes the next head's query", [](Altered &a) {
        const auto &op = a.as<Attention>();
        rotate_rows(a.own_f32(op.q), a.rows(op.q), a.cols(op.q), op.head_dim);
    });
    add(attention, "swaps keys and values",
        [](Altered &a) { std::swap(a.as<Attention>().k_state, a.as<Attention>().v_state); });
    add(attention, "skips the last token", skip_last_token);
    add_block_mutants(m);
}

}  // namespace

const std::vector<Mutant> &mutants() {
    static const std::vector<Mutant> all = [] {
        std::vector<Mutant> m;
        add_matrix_mutants<Contract>(m);
        m.push_back({"forgets the bias", kind<Contract>(), no_bias});
        m.push_back({"forgets the bias", kind<Contract>(), no_bias, nullptr, DType::q8});
        for (const DType input : {DType::f32, DType::q8}) {
            m.push_back({"takes the bias of expert 0", kind<Contract>(), bias_of_expert_0, nullptr, input});
            m.push_back({"takes the next expert's bias", kind<Contract>(), bias_of_next_expert, nullptr, input});
        }
        add_matrix_mutants<GateUp>(m);
        add_unit_mutants(m);
        m.push_back({"takes gate for up", kind<GateUp>(), gate_for_up});
        add_row_mutants(m);
        for (const WrongRow &row : wrong_rows()) m.push_back({row.name, row.op, {}, row.run});
        add_state_mutants(m);
        return m;
    }();
    return all;
}

}  // namespace ridge::test
