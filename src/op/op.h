// The operations. Each is a plain struct: what it reads, what it writes, its parameters, its shapes as comments.
//
// m is the number of tokens of a step. Everything that varies per token (ids, positions, KV lengths, pages, wanted
// rows, how their tokens are drawn) is in the step buffer (engine/step.h), never in an operation.
//
// `visit(self, v)` names every operand to a visitor with in(ValueId&), out(ValueId&), weight(WeightId&),
// state(StateId&): fusion, placement, memory planning and cost need no knowledge of single operations beyond it.
// Optional operands are visited only where present.
//
// RmsNorm, AddRmsNorm, Attention and GateUp can also publish the q8 form of what they compute: with `q8`, they write
// there what Quantize would make of `out`, to the bit. Where `out_read` is false nobody else reads `out`; it is an
// operand all the same, so that a row may keep it there in between, and what it holds afterwards is nothing to rely on.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "op/types.h"

namespace ridge {

// out[i] = table[token[i]], decoded to f32.
struct Embed {
    static constexpr std::string_view kName = "embed";
    WeightId table = kNone;  // (vocab, n)
    ValueId out = kNone;     // (m, n) f32
    float scale = 1;         // on every value
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.weight(s.table), v.out(s.out);
    }
};

// For every `width` columns: out = x / sqrt(mean(x^2) + eps) * weight. width < cols normalises heads one by one.
struct RmsNorm {
    static constexpr std::string_view kName = "rmsnorm";
    ValueId x = kNone, out = kNone;  // (m, cols) f32
    WeightId weight = kNone;         // (width) f32
    uint32_t width = 0;
    float eps = 0;
    ValueId q8 = kNone;  // (m, cols) q8, optional
    bool out_read = true;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.weight(s.weight), v.out(s.out);
        if (s.q8 != kNone) v.out(s.q8);
    }
};

// f32 -> q8, per block of 32: scale = max|x| / 127, code = round-half-even(x / scale) held to -127 .. 127, sums[h] =
// the sum of the codes of half h. Both divisions are IEEE 754's, so every row gives the same bits. Where the scale
// rounds to 0 (a block of zeros, or max|x| <= 63 * 2^-149), scale and codes are 0. A block that holds an infinity or a
// NaN has scale NaN, codes 0 and sums 0, so that whatever it takes part in becomes NaN.
struct Quantize {
    static constexpr std::string_view kName = "quantize";
    ValueId x = kNone;    // (m, k) f32
    ValueId out = kNone;  // (m, k) q8
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.out);
    }
};

// One weight matrix of a contraction and where its product goes.
struct Bank {
    WeightId weight = kNone;  // (experts, n, k)
    WeightId bias = kNone;    // (experts, n) f32, optional
    ValueId out = kNone;      // (m, n) f32; with ids (m * slots, n)
};

// out[i, :] = weight x[i, :] (+ bias), for up to three matrices that read the same x in one launch.
// With ids (m, slots) i32: row i*slots+s of out is expert ids[i, s] applied to x[i] or, where x has a row per slot,
// to x[i*slots+s].
struct Contract {
    static constexpr std::string_view kName = "contract";
    ValueId x = kNone;    // (m, k) or (m * slots, k); f32 or q8
    ValueId ids = kNone;  // optional
    uint32_t n_banks = 0;
    std::array<Bank, 3> banks;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x);
        if (s.ids != kNone) v.in(s.ids);
        for (uint32_t b = 0; b < s.n_banks; b++) {
            v.weight(s.banks[b].weight);
            if (s.banks[b].bias != kNone) v.weight(s.banks[b].bias);
            v.out(s.banks[b].out);
        }
    }
};

// cos and sin of position * frequency for every token of the step, once for all layers.
// out[i, 2j] = cos(p_i f_j) * magnitude, out[i, 2j+1] = sin(p_i f_j) * magnitude, computed in double.
struct RopeTable {
    static constexpr std::string_view kName = "rope_table";
    ValueId out = kNone;            // (m, n_rot) f32
    std::vector<double> frequency;  // (n_rot / 2), radians per position
    double magnitude = 1;           // the attention factor of YaRN and longrope

    // temperature > 0: the magnitude at position p is `magnitude` (1 + temperature ln(1 + floor(p /
    // temperature_every))).
    double temperature = 0;
    uint32_t temperature_every = 0;

    // longrope: a context of more than `long_above` positions has these frequencies instead. A session, which knows its
    // context, puts them into `frequency`; kernels read only that.
    std::vector<double> long_frequency;  // empty, or (n_rot / 2)
    uint32_t long_above = 0;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.out(s.out);
    }
};

// Which two elements of a head rotate together: j and j + n_rot/2 (halves), or 2j and 2j+1 (adjacent).
enum class RopePairs : uint8_t { halves, adjacent };

// Rotates the first n_rot elements of every head; the rest passes through.
struct Rope {
    static constexpr std::string_view kName = "rope";
    ValueId x = kNone, out = kNone;  // (m, heads * head_dim) f32
    ValueId table = kNone;           // (m, n_rot) f32, from rope_table
    uint32_t head_dim = 0;
    RopePairs pairs = RopePairs::halves;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.in(s.table), v.out(s.out);
    }
};

// Stores row i of k and v at the slot of token i (step buffer: sequence, position, page table).
//
// What is stored has the same bits in every kernel row. f16: to nearest, ties to even. q8_0, for 32 values at a time:
//   scale = max|x| / 127 rounded to f16, code = round-half-even(x * (1 / scale)) held to -127 .. 127
// with quotient, reciprocal and product rounded to f32. Where the scale rounds to 0 all codes are 0. A block that holds
// an infinity or a NaN, or values whose scale is beyond f16 (max|x| >= 127 * 65520), has the scale NaN 0x7e00 and codes
// 0, so that whatever it takes part in becomes NaN.
struct KvWrite {
    static constexpr std::string_view kName = "kv_write";
    ValueId k = kNone, v = kNone;              // (m, kv_heads * head_dim) f32
    StateId k_state = kNone, v_state = kNone;  // (slots, kv_heads * head_dim) f32, f16 or q8_0
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.k), v.in(s.v), v.state(s.k_state), v.state(s.v_state);
    }
};

// out[i, h] = sum_j p_j v[j, g], p = softmax_j(s), s_j = scale * q[i, h] . k[j, g], g = h / (heads / kv_heads), j over
// the positions 0 .. position[i] of the token's own sequence (its KV rows are written before). softcap > 0: s_j becomes
// softcap * tanh(s_j / softcap). sinks: the softmax has one more term, of score sinks[h], that takes part in no sum of
// values.
struct Attention {
    static constexpr std::string_view kName = "attention";
    ValueId q = kNone, out = kNone;  // (m, heads * head_dim) f32
    StateId k_state = kNone, v_state = kNone;
    uint32_t heads = 0, kv_heads = 0, head_dim = 0;
    float scale = 0;
    uint32_t window = 0;     // > 0: only the last `window` positions, the token's own among them
    float softcap = 0;       // 0: none
    WeightId sinks = kNone;  // (heads) f32, optional
    ValueId q8 = kNone;      // (m, heads * head_dim) q8, optional
    bool out_read = true;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.q), v.state(s.k_state), v.state(s.v_state);
        if (s.sinks != kNone) v.weight(s.sinks);
        v.out(s.out);
        if (s.q8 != kNone) v.out(s.q8);
    }
};

// What a gated linear unit makes of its two halves.
//   silu     silu(gate) * up, silu(x) = x / (1 + exp(-x))
//   gelu     gelu(gate) * up, gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
//   clamped  g / (1 + exp(-1.702 g)) * (u + 1), g = min(gate, 7), u = up held to -7 .. 7   (gpt-oss)
enum class GluKind : uint8_t { silu, gelu, clamped };

struct Glu {
    static constexpr std::string_view kName = "glu";
    ValueId gate = kNone, up = kNone, out = kNone;  // (rows, n) f32
    GluKind kind = GluKind::silu;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.gate), v.in(s.up), v.out(s.out);
    }
};

// out = a + scale * b, rounded once.
struct Add {
    static constexpr std::string_view kName = "add";
    ValueId a = kNone, b = kNone, out = kNone;  // (m, n) f32
    float scale = 1;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.a), v.in(s.b), v.out(s.out);
    }
};

// out = scale * x, then, with softcap > 0, softcap * tanh(out / softcap).
struct Scale {
    static constexpr std::string_view kName = "scale";
    ValueId x = kNone, out = kNone;  // (rows, n) f32
    float scale = 1;
    float softcap = 0;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.out);
    }
};

// out[i] = x[i] / (1 + exp(-gate[i])): whole rows weighted by a sigmoid.
struct RowGate {
    static constexpr std::string_view kName = "row_gate";
    ValueId x = kNone, out = kNone;  // (m, n) f32
    ValueId gate = kNone;            // (m, 1) f32
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.in(s.gate), v.out(s.out);
    }
};

// Row-wise softmax.
struct Softmax {
    static constexpr std::string_view kName = "softmax";
    ValueId x = kNone, out = kNone;  // (m, n) f32
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.out);
    }
};

// The k largest of each row, descending; of equals the lower index first.
struct TopK {
    static constexpr std::string_view kName = "top_k";
    ValueId x = kNone;                     // (m, n) f32
    ValueId ids = kNone, weights = kNone;  // (m, k) i32, (m, k) f32
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.ids), v.out(s.weights);
    }
};

// Row-wise out = x / sum(x).
struct Normalize {
    static constexpr std::string_view kName = "normalize";
    ValueId x = kNone, out = kNone;  // (m, k) f32
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.out);
    }
};

// out[i] = sum_s weights[i, s] * x[i*slots + s], s ascending.
struct MoeCombine {
    static constexpr std::string_view kName = "moe_combine";
    ValueId x = kNone;        // (m * slots, n) f32
    ValueId weights = kNone;  // (m, slots) f32
    ValueId out = kNone;      // (m, n) f32
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.in(s.weights), v.out(s.out);
    }
};

// out[j] = x[output[j]]: the rows whose logits are wanted.
struct GatherRows {
    static constexpr std::string_view kName = "gather_rows";
    ValueId x = kNone;    // (m, n) f32
    ValueId out = kNone;  // (outputs, n) f32
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.out);
    }
};

// ids[r] = the column of the largest x[r, :], of equals the lowest: what greedy sampling takes. -1 where there is
// nothing to take: the row holds a NaN or +infinity, or nothing above -infinity.
struct ArgMax {
    static constexpr std::string_view kName = "arg_max";
    ValueId x = kNone;    // (rows, n) f32
    ValueId ids = kNone;  // (rows, 1) i32
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.ids);
    }
};

// ids[r] = a column of x[r, :] drawn as the step buffer says for output r (Draw in engine/step.h), by the text of
// op/sampling.h: of the top_k largest, of equals the lowest, what top-p and min-p leave, at the temperature. -1 where
// ArgMax has it.
struct Sample {
    static constexpr std::string_view kName = "sample";
    ValueId x = kNone;    // (outputs, n) f32
    ValueId ids = kNone;  // (outputs, 1) i32
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.ids);
    }
};

// The same values on another device. The engine runs it between the two devices' segments.
struct Copy {
    static constexpr std::string_view kName = "copy";
    ValueId x = kNone, out = kNone;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x), v.out(s.out);
    }
};

// ---- Fused forms: what the rules of engine/fuse.cpp make of the ones above. Each equals its parts bit for bit.

// sum = a + scale * b; out = rmsnorm(sum). With `slots`, the weights of b's rows (m * slots, n), what MoeCombine
// makes of both takes b's place.
struct AddRmsNorm {
    static constexpr std::string_view kName = "add_rmsnorm";
    ValueId a = kNone, b = kNone, sum = kNone, out = kNone;  // (m, n) f32
    WeightId weight = kNone;
    float eps = 0;
    float scale = 1;
    ValueId q8 = kNone;  // (m, n) q8, optional
    bool out_read = true;
    ValueId slots = kNone;  // (m, slots) f32, optional
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.a), v.in(s.b);
        if (s.slots != kNone) v.in(s.slots);
        v.weight(s.weight), v.out(s.sum), v.out(s.out);
        if (s.q8 != kNone) v.out(s.q8);
    }
};

// q_out = rope(norm(q)); state <- rope(norm(k)), v. The norms are optional (llama and qwen2 have none).
struct QkNormRope {
    static constexpr std::string_view kName = "qk_norm_rope";
    ValueId q = kNone, k = kNone, v = kNone, table = kNone, q_out = kNone;
    WeightId q_norm = kNone, k_norm = kNone;  // (head_dim) f32
    StateId k_state = kNone, v_state = kNone;
    uint32_t head_dim = 0;
    RopePairs pairs = RopePairs::halves;
    float eps = 0;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.q), v.in(s.k), v.in(s.v), v.in(s.table);
        if (s.q_norm != kNone) v.weight(s.q_norm);
        if (s.k_norm != kNone) v.weight(s.k_norm);
        v.state(s.k_state), v.state(s.v_state), v.out(s.q_out);
    }
};

// out = glu(gate x, up x): two banks of equal shape, no biases; ids as in Contract.
struct GateUp {
    static constexpr std::string_view kName = "gate_up";
    ValueId x = kNone, ids = kNone, out = kNone;
    WeightId gate = kNone, up = kNone;  // (experts, n, k)
    GluKind kind = GluKind::silu;
    ValueId q8 = kNone;  // as out, q8, optional
    bool out_read = true;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.x);
        if (s.ids != kNone) v.in(s.ids);
        v.weight(s.gate), v.weight(s.up), v.out(s.out);
        if (s.q8 != kNone) v.out(s.q8);
    }
};

// ids, weights = top-k of softmax(logits), weights optionally divided by their sum.
struct MoeRoute {
    static constexpr std::string_view kName = "moe_route";
    ValueId logits = kNone;                // (m, experts) f32
    ValueId ids = kNone, weights = kNone;  // (m, k) i32, (m, k) f32
    bool normalize = false;
    template <class Self, class V>
    static void visit(Self &s, V &&v) {
        v.in(s.logits), v.out(s.ids), v.out(s.weights);
    }
};

using Op = std::variant<Embed, RmsNorm, Quantize, Contract, RopeTable, Rope, KvWrite, Attention, Glu, Add, Scale,
                        RowGate, Softmax, TopK, Normalize, MoeCombine, GatherRows, ArgMax, Sample, Copy, AddRmsNorm,
                        QkNormRope, GateUp, MoeRoute>;

// Index of an operation in Op; kind<Contract> names it in kernel tables.
using OpKind = uint8_t;
template <class T>
consteval OpKind kind() {
    return []<size_t... I>(std::index_sequence<I...>) {
        OpKind found = 0;
        ((std::is_same_v<T, std::variant_alternative_t<I, Op>> ? (found = I) : 0), ...);
        return found;
    }
    (std::make_index_sequence<std::variant_size_v<Op>>{});
}
std::string_view op_name(OpKind k);
// Where `op` publishes the q8 form of what it computes; kNone where it does not.
ValueId published(const Op &op);
constexpr size_t kOpKinds = std::variant_size_v<Op>;

// Calls the operands of whichever operation `op` holds.
template <class V>
void visit_operands(Op &op, V &&v) {
    std::visit([&](auto &o) { o.visit(o, v); }, op);
}
template <class V>
void visit_operands(const Op &op, V &&v) {
    std::visit([&](const auto &o) { o.visit(o, v); }, op);
}

}  // namespace ridge
