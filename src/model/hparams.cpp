// Hyper-parameters: read from metadata and held to ranges. The upper limits are far above any model that exists and
// low enough that products of two of them fit 32 bits where the engine multiplies them (heads * head_dim, positions).
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "core/error.h"
#include "gguf/printable.h"
#include "model/model.h"
#include "model/rope.h"

namespace ridge {
namespace {

constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxWidth = 1u << 20;  // n_embd, heads * head_dim
constexpr uint64_t kMaxFf = 1u << 24;
constexpr uint64_t kMaxHeads = 1u << 14;
constexpr uint64_t kMaxHeadDim = 1u << 12;
constexpr uint64_t kMaxVocab = 1u << 24;
constexpr uint64_t kMaxContext = 1u << 30;
constexpr uint64_t kMaxExperts = 1u << 14;

class Reader {
  public:
    Reader(const gguf::File &file, std::string_view architecture) : file_(file), architecture_(architecture) {}

    std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
    std::string path() const { return file_.paths().front().string(); }

    // An integer in [low, high]. An array, which some files have with an element per layer, counts as its element where
    // all are equal.
    uint32_t integer(std::string_view name, uint64_t low, uint64_t high) const {
        return checked(name, required(name), low, high);
    }
    uint32_t integer(std::string_view name, uint64_t low, uint64_t high, uint32_t absent) const {
        const gguf::Value *v = file_.find(key(name));
        return v ? checked(name, *v, low, high) : absent;
    }
    // A finite number > 0 and <= high. Numbers so small that what they divide may overflow are refused too.
    double positive(std::string_view name, double high) const {
        constexpr double kLeast = 1e-12;
        const double x = file_.get_f64(key(name));
        if (!(x >= kLeast && x <= high))
            fail(ErrorKind::file, "{}: {} is {}; expected a number above 0, up to {}", path(), key(name), x, high);
        return x;
    }
    double positive(std::string_view name, double high, double absent) const {
        return file_.find(key(name)) ? positive(name, high) : absent;
    }
    double positive_or_zero(std::string_view name, double high, double absent = 0) const {
        return file_.get_f64(key(name), absent) == 0 ? 0 : positive(name, high, absent);
    }
    // A key of other architectures that changes the forward pass: only values that leave it as it is here will do.
    void only(std::string_view name, std::initializer_list<double> neutral) const {
        const double x = file_.get_f64(key(name), *neutral.begin());
        const auto equal = [x](double n) { return std::abs(x - n) <= 1e-6 * std::abs(n); };
        if (!std::any_of(neutral.begin(), neutral.end(), equal))
            fail(ErrorKind::unsupported, "{}: {} is {}; the forward pass of '{}' here knows only {}", path(), key(name),
                 x, architecture_, fmt::join(neutral, " or "));
    }

  private:
    const gguf::Value &required(std::string_view name) const {
        if (const gguf::Value *v = file_.find(key(name))) return *v;
        fail(ErrorKind::file, "{}: the key {} is missing; a model of architecture '{}' needs it", path(), key(name),
             architecture_);
    }
    uint32_t checked(std::string_view name, const gguf::Value &v, uint64_t low, uint64_t high) const {
        std::optional<int64_t> x = v.as_i64();
        if (v.type == gguf::Type::array) {
            const auto list = v.as_ints();
            if (list && !list->empty()) {
                if (!std::all_of(list->begin(), list->end(), [&](int64_t e) { return e == list->front(); }))
                    fail(ErrorKind::unsupported,
                         "{}: {} differs between layers: {}; only models whose layers are all alike run", path(),
                         key(name), gguf::preview(v));
                x = list->front();
            }
        }
        // An u64 above the range of i64 is out of any range here too.
        if (!x || *x < 0 || static_cast<uint64_t>(*x) < low || static_cast<uint64_t>(*x) > high)
            fail(ErrorKind::file, "{}: {} is {} ({}); expected an integer from {} to {}", path(), key(name),
                 gguf::preview(v), gguf::type_text(v), low, high);
        return static_cast<uint32_t>(*x);
    }

    const gguf::File &file_;
    std::string_view architecture_;
};

void read_attention(const Reader &r, Hparams &h) {
    h.n_heads = r.integer("attention.head_count", 1, kMaxHeads);
    h.n_kv_heads = r.integer("attention.head_count_kv", 1, kMaxHeads, h.n_heads);
    if (h.n_heads % h.n_kv_heads != 0)
        fail(ErrorKind::file, "{}: {} = {} does not divide {} = {}", r.path(), r.key("attention.head_count_kv"),
             h.n_kv_heads, r.key("attention.head_count"), h.n_heads);
    const bool given = r.integer("attention.key_length", 2, kMaxHeadDim, 0) != 0;
    if (!given && h.n_embd % h.n_heads != 0)
        fail(ErrorKind::file, "{}: {} = {} does not divide {} = {}, and {} is not there", r.path(),
             r.key("attention.head_count"), h.n_heads, r.key("embedding_length"), h.n_embd,
             r.key("attention.key_length"));
    h.head_dim = given ? r.integer("attention.key_length", 2, kMaxHeadDim) : h.n_embd / h.n_heads;
    if (uint64_t{h.n_heads} * h.head_dim > kMaxWidth || h.head_dim > kMaxHeadDim || h.head_dim % 2 != 0)
        fail(ErrorKind::file,
             "{}: {} heads of {} elements ({}, {}); expected an even number up to {} and a product up to {}", r.path(),
             h.n_heads, h.head_dim, r.key("attention.head_count"), r.key("attention.key_length"), kMaxHeadDim,
             kMaxWidth);
    const uint32_t value_length = r.integer("attention.value_length", 2, kMaxHeadDim, h.head_dim);
    if (value_length != h.head_dim)
        fail(ErrorKind::unsupported, "{}: {} = {}, but keys have {}; only models where they are equal run", r.path(),
             r.key("attention.value_length"), value_length, h.head_dim);
}

RopeParams::Scaling scaling_type(const gguf::File &file, const Reader &r) {
    // Files of longrope often have its tensors and no type. A factor without a type, and rope.scale_linear of old
    // files, mean linear.
    if (file.find_tensor(kRopeLong) || file.find_tensor(kRopeShort)) return RopeParams::Scaling::longrope;
    const bool stretched = file.find(r.key("rope.scaling.factor")) || r.positive("rope.scale_linear", 1e6, 1) != 1;
    const std::string_view type = file.get_string(r.key("rope.scaling.type"), stretched ? "linear" : "none");
    if (type == "none") return RopeParams::Scaling::none;
    if (type == "linear") return RopeParams::Scaling::linear;
    if (type == "yarn") return RopeParams::Scaling::yarn;
    if (type == "longrope") return RopeParams::Scaling::longrope;
    fail(ErrorKind::unsupported,
         "{}: {} is '{}'; none, linear, yarn and longrope run, and the factors of rope_freqs.weight", r.path(),
         r.key("rope.scaling.type"), gguf::printable(type));
}

void read_rope_scaling(const gguf::File &file, const Reader &r, const Architecture &a, const Hparams &h,
                       RopeParams &rope) {
    using Scaling = RopeParams::Scaling;
    rope.scaling = scaling_type(file, r);
    if (rope.scaling == Scaling::none || rope.scaling == Scaling::linear)
        for (std::string_view factor : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"})
            r.only(factor, {1});
    if (rope.scaling == Scaling::none) return;
    rope.factor = r.positive_or_zero("rope.scaling.factor", 1e6, r.positive("rope.scale_linear", 1e6, 1));
    if (rope.factor == 0) rope.factor = 1;  // as files write that there is none
    if (rope.scaling == Scaling::linear) return;
    rope.original_context = r.integer("rope.scaling.original_context_length", 1, kMaxContext, h.context_length);
    double magnitude = 1;
    if (rope.scaling == Scaling::yarn) {
        rope.beta_fast = r.positive("rope.scaling.yarn_beta_fast", 1e6, 32);
        rope.beta_slow = r.positive("rope.scaling.yarn_beta_slow", 1e6, 1);
        rope.extrapolation = r.positive("rope.scaling.yarn_ext_factor", 1, 1);
        magnitude = yarn_magnitude(rope.factor);
        // mscale_all_dim: both magnitudes are there, and divide each other.
        magnitude /= 1 + (magnitude - 1) * r.positive_or_zero("rope.scaling.yarn_log_multiplier", 1e3);
        magnitude *= r.positive("rope.scaling.attn_factor", 1e3, 1);
        rope.whole_pairs = !a.has(kExactRamp);
    } else {
        const double stretch = static_cast<double>(h.context_length) / rope.original_context;
        magnitude = r.positive("rope.scaling.attn_factor", 1e3, longrope_magnitude(stretch, rope.original_context));
    }
    rope.magnitude = r.positive("rope.scaling.yarn_attn_factor", 1e3, magnitude);  // of all, where it is there
}

void read_rope(const gguf::File &file, const Reader &r, const Architecture &a, Hparams &h) {
    h.n_rot = r.integer("rope.dimension_count", 2, h.head_dim, h.head_dim);
    if (h.n_rot % 2 != 0)
        fail(ErrorKind::file, "{}: {} = {} is odd; elements turn in pairs", r.path(), r.key("rope.dimension_count"),
             h.n_rot);
    h.rope.base = r.positive("rope.freq_base", 1e15, 10000);
    read_rope_scaling(file, r, a, h, h.rope);
    h.local_rope = h.rope;
    if (a.has(kPlainLocalRope)) h.local_rope = {.base = h.rope.base, .factors = false};
    const double local_base = a.local_rope_base > 0 ? a.local_rope_base : h.rope.base;
    h.local_rope.base = r.positive("rope.freq_base_swa", 1e15, local_base);
    // Models whose positions turn in no layer, or in some only.
    if (a.has(kScales) && !file.get_bool(r.key("rope.scaling.finetuned"), true))
        fail(ErrorKind::unsupported, "{}: {} is false; '{}' runs here with rotary positions only", r.path(),
             r.key("rope.scaling.finetuned"), a.name);
    if (!a.has(kTemperature)) {
        r.only("attention.temperature_scale", {0});
        return;
    }
    h.temperature = r.positive_or_zero("attention.temperature_scale", 1e3);
    h.temperature_every = r.integer("rope.scaling.original_context_length", 1, kMaxContext, h.context_length);
    r.only("attention.temperature_length", {static_cast<double>(h.temperature_every)});
    if (h.temperature != 0 && h.n_rot != h.head_dim)
        fail(ErrorKind::unsupported, "{}: {} with {} = {} of {} elements; it runs where whole heads turn", r.path(),
             r.key("attention.temperature_scale"), r.key("rope.dimension_count"), h.n_rot, h.head_dim);
}

// attention.sliding_window_pattern is a period p (layers p-1, 2p-1, ... see everything) or says for each layer whether
// its window slides.
void read_window(const gguf::File &file, const Reader &r, const Architecture &a, Hparams &h) {
    h.window.assign(h.n_layers, 0);
    if (!a.has(kWindow)) {
        r.only("attention.sliding_window", {0});
        return;
    }
    const uint32_t window = a.has(kNeedsWindow) ? r.integer("attention.sliding_window", 1, kMaxContext)
                                                : r.integer("attention.sliding_window", 0, kMaxContext, a.window);
    if (window == 0) return;
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    const gguf::Value *pattern = file.find(r.key(kPattern));
    if (pattern != nullptr && pattern->type == gguf::Type::array) {
        const auto slides = pattern->as_ints();
        if (!slides || slides->size() != h.n_layers)
            fail(ErrorKind::file, "{}: {} is {} ({}); expected a period, or a flag for each of {} layers", r.path(),
                 r.key(kPattern), gguf::preview(*pattern), gguf::type_text(*pattern), h.n_layers);
        for (uint32_t i = 0; i < h.n_layers; i++) h.window[i] = (*slides)[i] != 0 ? window : 0;
        return;
    }
    if (pattern != nullptr && !pattern->as_i64())
        fail(ErrorKind::file, "{}: {} is {} ({}); expected a period, or a flag for each of {} layers", r.path(),
             r.key(kPattern), gguf::preview(*pattern), gguf::type_text(*pattern), h.n_layers);
    const uint32_t period = r.integer(kPattern, 0, kMaxLayers, a.window_period);
    for (uint32_t i = 0; i < h.n_layers; i++) h.window[i] = period == 0 || i % period != period - 1 ? window : 0;
}

// Factors on embeddings, residual branches, scores and logits, and the caps on the last two.
void read_scales(const Reader &r, const Architecture &a, Hparams &h) {
    constexpr double kMost = 1e6;
    const double scaled_dim =
        h.n_layers == a.layers_scaled_by_width ? static_cast<double>(h.n_embd) / h.n_heads : h.head_dim;
    h.attention_scale = r.positive_or_zero("attention.scale", kMost);
    if (h.attention_scale == 0) h.attention_scale = 1 / std::sqrt(scaled_dim);
    if (a.has(kScales)) {
        h.embedding_scale = r.positive("embedding_scale", kMost, 1);
        h.residual_scale = r.positive("residual_scale", kMost, 1);
        h.logit_scale = r.positive("logit_scale", kMost);
    } else {
        for (std::string_view factor : {"embedding_scale", "residual_scale", "logit_scale"}) r.only(factor, {1});
        if (a.root_embedding) h.embedding_scale = std::sqrt(static_cast<double>(h.n_embd));
    }
    if (a.has(kSoftcap)) {
        h.attention_softcap = r.positive_or_zero("attn_logit_softcapping", kMost, a.score_softcap);
        h.logit_softcap = r.positive_or_zero("final_logit_softcapping", kMost, a.logit_softcap);
    } else {
        for (std::string_view cap : {"attn_logit_softcapping", "final_logit_softcapping"}) r.only(cap, {0});
    }
}

void read_experts(const gguf::File &file, const Reader &r, const Architecture &a, Hparams &h) {
    if (!a.has(kExperts)) {
        const uint32_t n = r.integer("expert_count", 0, kMaxExperts, 0);
        if (n == 0) return;
        if (!a.has(kMaybeExperts))
            fail(ErrorKind::unsupported, "{}: {} = {}; '{}' runs here without experts only", r.path(),
                 r.key("expert_count"), n, h.architecture);
    }
    h.n_experts = r.integer("expert_count", 1, kMaxExperts);
    h.n_experts_used = r.integer("expert_used_count", 1, h.n_experts);
    // llama writes the width of an expert as that of the whole.
    const uint32_t width = a.has(kMaybeExperts) ? h.n_ff : h.n_ff / h.n_experts_used;
    h.n_ff_expert = r.integer("expert_feed_forward_length", 1, kMaxFf, width);
    if (h.n_ff_expert == 0)
        fail(ErrorKind::file, "{}: the key {} is missing, and {} does not tell it", r.path(),
             r.key("expert_feed_forward_length"), r.key("feed_forward_length"));
    if (a.has(kSharedExpert)) {
        h.n_ff_shared = r.integer("expert_shared_feed_forward_length", 1, kMaxFf, h.n_ff);
        if (h.n_ff_shared == 0)
            fail(ErrorKind::file, "{}: the key {} is missing, and {} does not tell it", r.path(),
                 r.key("expert_shared_feed_forward_length"), r.key("feed_forward_length"));
    } else {
        r.only("expert_shared_feed_forward_length", {0});
    }
    r.only("expert_weights_scale", {1, 0});  // 0: not scaled
    r.only("expert_group_count", {0, 1});
    r.only("leading_dense_block_count", {0});
    // 0: the architecture's own; 1: softmax over all; 3: over the chosen, which is the same scaled to sum 1
    const bool scaled = !a.has(kPlainExpertWeights);
    if (scaled)
        r.only("expert_gating_func", {1, 3, 0});
    else
        r.only("expert_gating_func", {1, 0});
    if (file.get_bool(r.key("expert_weights_norm"), scaled) != scaled)
        fail(ErrorKind::unsupported, "{}: {} is {}; '{}' runs here with {} only", r.path(),
             r.key("expert_weights_norm"), !scaled, a.name, scaled);
}

uint32_t read_vocab(const gguf::File &file, const Reader &r) {
    uint64_t n = 0;
    std::string from;
    if (const gguf::Value *tokens = file.find("tokenizer.ggml.tokens"); tokens && tokens->type == gguf::Type::array) {
        n = tokens->count, from = "the number of tokenizer.ggml.tokens";
    } else if (file.find(r.key("vocab_size"))) {
        return r.integer("vocab_size", 1, kMaxVocab);
    } else if (const gguf::Tensor *t = file.find_tensor("token_embd.weight")) {
        n = t->shape[1], from = "the number of rows of token_embd.weight";
    } else {
        fail(ErrorKind::file,
             "{}: no tokenizer.ggml.tokens, no {} and no tensor token_embd.weight tell the size of the vocabulary",
             r.path(), r.key("vocab_size"));
    }
    if (n < 1 || n > kMaxVocab) fail(ErrorKind::file, "{}: {} is {}; expected 1 to {}", r.path(), from, n, kMaxVocab);
    return static_cast<uint32_t>(n);
}

}  // namespace

Hparams read_hparams(const gguf::File &file) {
    const Architecture &a = architecture_of(file);
    const Reader r(file, a.name);
    Hparams h;
    h.architecture = a.name;
    h.n_layers = r.integer("block_count", 1, kMaxLayers);
    h.n_embd = r.integer("embedding_length", 1, kMaxWidth);
    h.n_ff =
        a.has(kExperts) ? r.integer("feed_forward_length", 0, kMaxFf, 0) : r.integer("feed_forward_length", 1, kMaxFf);
    h.context_length = r.integer("context_length", 1, kMaxContext);
    h.rms_eps = r.positive("attention.layer_norm_rms_epsilon", 1);
    read_attention(r, h);
    read_rope(file, r, a, h);
    read_window(file, r, a, h);
    read_scales(r, a, h);
    read_experts(file, r, a, h);
    h.n_vocab = read_vocab(file, r);
    r.only("attention.clamp_kqv", {0});
    if (file.get_bool(r.key("use_parallel_residual"), false))
        fail(ErrorKind::unsupported, "{}: {} is true; only models whose feed-forward follows attention run", r.path(),
             r.key("use_parallel_residual"));
    if (!file.get_bool(r.key("attention.causal"), true))
        fail(ErrorKind::unsupported, "{}: {} is false; only models that look back run", r.path(),
             r.key("attention.causal"));
    return h;
}

}  // namespace ridge
