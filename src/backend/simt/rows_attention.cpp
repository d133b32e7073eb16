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
    return a;
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
    e.grid("attention_general", name, {op.heads, v.step.tokens()}, kGeneralThreads, general_shared_bytes(op.head_dim),
           args_of(v, e));
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
    // For the most chunks that a token may have: positions are read on the device.
    const uint32_t chunks = std::min(kSplitChunks, v.step.limits.pages);
    e.grid("attention_split", split_name(s, v.program.state(op.k_state).type), {chunks, a.across, v.step.tokens()},
           kSplitThreads, split_shared_bytes(s.heads, op.head_dim), a);
}

Kernel kernel(std::string_view name, Lever lever, Order order, int rank, TokenRange tokens = {}) {
    Kernel k;
    k.name = name, k.op = kind<Attention>();
    k.lever = lever, k.order = order, k.rank = rank, k.tokens = tokens;
    return k;
}

std::vector<Row> make_rows() {
    static_assert(kSplitUnit == kPageTokens, "a page has one unit");
    std::vector<Row> rows;
    Kernel general = kernel("simt.attention.general", Lever::none, Order::softmax_blocks64, 0);
    general.refuses = refuses_general;
    rows.push_back({general, emit_general});
    Kernel split = kernel("simt.attention.split", Lever::split_kv, Order::softmax_split, 20, {1, kSplitTokens});
    split.refuses = refuses_split, split.tile.shared_bytes = split_shared;
    rows.push_back({split, emit_split});
    return rows;
}

}  // namespace

std::span<const Row> attention_rows() {
    static const std::vector<Row> rows = make_rows();
    return rows;
}

}  // namespace ridge::simt
