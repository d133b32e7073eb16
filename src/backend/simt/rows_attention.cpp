// Rows of attention for CUDA and HIP.
#include <algorithm>
#include <bit>
#include <vector>

#include "backend/simt/kernels/attention.h"
#include "backend/simt/rows.h"
#include "engine/program.h"

namespace ridge::simt {
namespace {

const Attention &op_of(const LaunchView &v) { return *std::get_if<Attention>(&v.op); }
uint32_t group_of(const Attention &op) { return op.heads / op.kv_heads; }

AttentionArgs args_of(const LaunchView &v, const Emit &e) {
    const Attention &op = op_of(v);
    AttentionArgs a{};
    a.q = v.ptr<float>(op.q), a.out = v.ptr<float>(op.out);
    a.k = v.state<std::byte>(op.k_state), a.v = v.state<std::byte>(op.v_state);
    if (op.sinks != kNone) a.sinks = reinterpret_cast<const float *>(v.weight(op.sinks));
    a.step = step_of(v, e);
    a.heads = op.heads, a.kv_heads = op.kv_heads, a.head_dim = op.head_dim, a.window = op.window;
    a.scale = op.scale, a.softcap = op.softcap;
    a.out_read = 1;
    return a;
}

// The q8 form of what was computed, where it is asked for.
void publish(const LaunchView &v, Emit &e) {
    const Attention &op = op_of(v);
    if (op.q8 != kNone) emit_quantize(v, e, op.out, op.q8);
}

std::string_view refuses_any(const Program &program, const Attention &op) {
    const DType k = program.state(op.k_state).type, v = program.state(op.v_state).type;
    if (k != v || !is_kv_type(k)) return "k and v are not both f16, both f32 or both q8_0";
    if (k == DType::q8_0 && op.head_dim % 32 != 0) return "head_dim is not a multiple of 32, which q8_0 needs";
    return op.scale > 0 ? "" : "scale is not positive";
}

// ---- general

std::string_view refuses_general(const Program &program, const Op &any) {
    const auto &op = *std::get_if<Attention>(&any);
    if (const std::string_view why = refuses_any(program, op); !why.empty()) return why;
    return op.head_dim > 2048 ? "head_dim is above 2048" : "";
}

void emit_general(const LaunchView &v, Emit &e) {
    const Attention &op = op_of(v);
    const DType type = v.program.state(op.k_state).type;
    const std::string_view name = type == DType::f32    ? "attention_general_f32"
                                  : type == DType::q8_0 ? "attention_general_q8_0"
                                                        : "attention_general_f16";
    e.grid("attention_general", name, {v.step.tokens(), op.heads}, kGeneralThreads, general_shared_bytes(op.head_dim),
           args_of(v, e));
    publish(v, e);
}

// ---- split

constexpr uint32_t kSplitTokens = 8;

// The kernel for a shape: lanes of a row, heads of a block.
struct SplitShape {
    uint32_t lanes, heads;
    explicit SplitShape(const Attention &op)
        : lanes(op.head_dim <= 64    ? 8
                : op.head_dim <= 128 ? 16
                                     : 32),
          heads(std::bit_ceil(group_of(op))) {
        heads = std::min(heads, lanes == 32 ? 4u : 8u);
    }
    uint32_t across(const Attention &op) const { return op.kv_heads * ((group_of(op) + heads - 1) / heads); }
};

std::string_view split_name(SplitShape s, DType type) {
#define SPLIT(lanes_, heads_)                                                      \
    if (s.lanes == lanes_ && s.heads == heads_)                                    \
        return type == DType::q8_0 ? "attention_split_q8_0_l" #lanes_ "_g" #heads_ \
                                   : "attention_split_f16_l" #lanes_ "_g" #heads_;
#include "backend/simt/kernels/attention_split.def"
    return {};
}

std::string_view refuses_split(const Program &program, const Op &any) {
    const auto &op = *std::get_if<Attention>(&any);
    if (const std::string_view why = refuses_any(program, op); !why.empty()) return why;
    if (program.state(op.k_state).type == DType::f32) return "keys and values are f32";
    if (op.head_dim % 8 != 0 || op.head_dim > 256) return "head_dim is not a multiple of 8 up to 256";
    if (SplitShape(op).across(op) * kSplitTokens > Tile::kSharedZero / sizeof(uint32_t))
        return "more than 128 KV heads, or parts of what shares one";
    return {};
}

size_t split_shared(const Program &, const Op &any, const StepLimits &limits) {
    const auto &op = *std::get_if<Attention>(&any);
    const SplitShape s(op);
    return Tile::kSharedZero + size_t{std::min(limits.tokens, kSplitTokens)} * s.across(op) * kSplitChunks *
                                   split_part_floats(s.heads, op.head_dim) * sizeof(float);
}

void emit_split(const LaunchView &v, Emit &e) {
    const Attention &op = op_of(v);
    const SplitShape s(op);
    AttentionArgs a = args_of(v, e);
    a.across = s.across(op);
    a.counters = reinterpret_cast<uint32_t *>(v.shared);
    a.parts = reinterpret_cast<float *>(v.shared + Tile::kSharedZero);
    const bool publishes = op.q8 != kNone && op.head_dim % 32 == 0;
    if (publishes) a.q8 = q8_of(v, op.q8), a.out_read = op.out_read;
    // For the most chunks that a token may have, and for one head to a block where it has one: positions are read on
    // the device.
    const uint32_t chunks = std::max(std::min(kSplitChunks, v.step.limits.pages), s.heads);
    e.grid("attention_split", split_name(s, v.program.state(op.k_state).type), {chunks, a.across, v.step.tokens()},
           kSplitThreads, split_shared_bytes(s.heads, op.head_dim), a);
    if (!publishes) publish(v, e);
}

// ---- mma

enum class MmaWeights { split, f16, bf16 };
struct MmaKind {
    MmaWeights weights = MmaWeights::split;
    bool exp2 = false, small = false;
};

// The head that a kernel is for; 0: there is none.
uint32_t mma_head_dim(const Attention &op, MmaKind kind) {
    const bool ladder = kind.weights != MmaWeights::split || kind.exp2;
    if (op.head_dim <= 64) return 64;
    if (op.head_dim <= 96 && !ladder) return 96;
    if (op.head_dim <= 128) return 128;
    return op.head_dim <= 256 && !ladder && !kind.small ? 256 : 0;
}

std::string_view mma_name(uint32_t head_dim, MmaKind kind) {
#define MMA(name, D, how, exp2_) \
    if (head_dim == D && kind.weights == MmaWeights::how && kind.exp2 == exp2_) return "attention_mma_" #name "_h" #D;
#include "backend/simt/kernels/attention_mma.def"
    return {};
}

// A row of weights rounded once, or exponentials to base 2, wants every lever that it stands for.
template <MmaWeights weights, bool exp2, bool small>
std::string_view refuses_mma(const Program &program, const Op &any) {
    constexpr MmaKind kKind{weights, exp2, small};
    const auto &op = *std::get_if<Attention>(&any);
    if (!program.levers.has(Lever::flash_mma)) return "its lever flash_mma is off";
    if (exp2 && !program.levers.has(Lever::p_exp2)) return "its lever p_exp2 is off";
    if (const std::string_view why = refuses_any(program, op); !why.empty()) return why;
    if (program.state(op.k_state).type != DType::f16) return "keys and values are not f16";
    const uint32_t head_dim = mma_head_dim(op, kKind);
    if (op.head_dim % 8 != 0 || head_dim == 0) return "head_dim is not a multiple of 8, or too large";
    return group_of(op) > 16 * mma_waves(head_dim, small) ? "too many heads share a KV head" : "";
}

template <MmaWeights weights, bool exp2, bool small>
void emit_mma(const LaunchView &v, Emit &e) {
    constexpr MmaKind kKind{weights, exp2, small};
    const Attention &op = op_of(v);
    const uint32_t head_dim = mma_head_dim(op, kKind), waves = mma_waves(head_dim, small);
    const uint32_t run = 16 * waves / group_of(op);  // tokens of a block
    e.grid("attention_mma", mma_name(head_dim, kKind), {op.kv_heads, (v.step.tokens() + run - 1) / run},
           waves * e.device().wave, mma_shared_bytes(head_dim, small), args_of(v, e));
    publish(v, e);
}

Kernel kernel(std::string_view name, Lever lever, Order order, int rank, TokenRange tokens = {}) {
    Kernel k;
    k.name = name, k.op = kind<Attention>();
    k.lever = lever, k.order = order, k.rank = rank, k.tokens = tokens;
    k.publishes = true;
    return k;
}

template <MmaWeights weights = MmaWeights::split, bool exp2 = false, bool small = false>
Row mma_row(std::string_view name, Features needs, Lever lever, Order order, int rank) {
    Kernel k = kernel(name, lever, order, rank);  // of few tokens where split_kv is off
    k.needs = needs, k.refuses = refuses_mma<weights, exp2, small>;
    return {k, emit_mma<weights, exp2, small>};
}

std::vector<Row> make_rows() {
    static_assert(kSplitUnit == kPageTokens, "a page has one unit");
    using enum MmaWeights;
    std::vector<Row> rows;
    Kernel general = kernel("simt.attention.general", Lever::none, Order::softmax_blocks64, 0);
    general.refuses = refuses_general;
    rows.push_back({general, emit_general});
    Kernel few = kernel("simt.attention.split", Lever::split_kv, Order::softmax_split, 20, {1, kSplitTokens});
    few.refuses = refuses_split, few.tile.shared_bytes = split_shared;
    rows.push_back({few, emit_split});
    rows.push_back(mma_row("simt.attention.mma", kMma, Lever::flash_mma, Order::softmax_mma_split, 10));
    rows.push_back(
        mma_row<split, false, true>("simt.attention.wmma", kWmma, Lever::flash_mma, Order::softmax_mma_split, 10));
    rows.push_back(
        mma_row<split, false, true>("simt.attention.mfma", kMfmaF16, Lever::flash_mma, Order::softmax_mma_split, 10));
    // The ladder: of the levers that are on, the coarsest weights win.
    rows.push_back(
        mma_row<split, true>("simt.attention.mma.exp2", kMma, Lever::p_exp2, Order::softmax_mma_split_exp2, 11));
    rows.push_back(mma_row<f16>("simt.attention.mma.f16", kMma, Lever::p_f16, Order::softmax_mma_f16, 12));
    rows.push_back(
        mma_row<f16, true>("simt.attention.mma.f16.exp2", kMma, Lever::p_f16, Order::softmax_mma_f16_exp2, 13));
    rows.push_back(mma_row<bf16>("simt.attention.mma.bf16", kMma, Lever::p_bf16, Order::softmax_mma_bf16, 14));
    rows.push_back(
        mma_row<bf16, true>("simt.attention.mma.bf16.exp2", kMma, Lever::p_bf16, Order::softmax_mma_bf16_exp2, 15));
    return rows;
}

}  // namespace

std::span<const Row> attention_rows() {
    static const std::vector<Row> rows = make_rows();
    return rows;
}

}  // namespace ridge::simt
