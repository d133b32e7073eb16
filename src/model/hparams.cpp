// Hyper-parameters: read from metadata and held to ranges. The upper limits are far above any model that exists and
// low enough that products of two of them fit 32 bits where the engine multiplies them (heads * head_dim, positions).
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "core/error.h"
#include "model/model.h"

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
    // A finite number > 0 and <= high.
    double positive(std::string_view name, double high) const {
        const double x = file_.get_f64(key(name));
        if (!(x > 0 && x <= high))
            fail(ErrorKind::file, "{}: {} is {}; expected a number above 0, up to {}", path(), key(name), x, high);
        return x;
    }
    double positive(std::string_view name, double high, double absent) const {
        return file_.find(key(name)) ? positive(name, high) : absent;
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

void read_rope(const gguf::File &file, const Reader &r, Hparams &h) {
    h.n_rot = r.integer("rope.dimension_count", 2, h.head_dim, h.head_dim);
    if (h.n_rot % 2 != 0)
        fail(ErrorKind::file, "{}: {} = {} is odd; elements turn in pairs", r.path(), r.key("rope.dimension_count"),
             h.n_rot);
    h.rope_base = r.positive("rope.freq_base", 1e15, 10000);

    // Old files have rope.scale_linear without a type.
    const double old_factor = r.positive("rope.scale_linear", 1e6, 1);
    const std::string_view type = file.get_string(r.key("rope.scaling.type"), old_factor != 1 ? "linear" : "none");
    if (type == "linear")
        h.rope_scale = 1 / r.positive("rope.scaling.factor", 1e6, old_factor);
    else if (type != "none")
        fail(ErrorKind::unsupported, "{}: {} is '{}'; 'none' and 'linear' run, and the factors of rope_freqs.weight",
             r.path(), r.key("rope.scaling.type"), type);
}

void read_experts(const Reader &r, bool has_experts, Hparams &h) {
    if (!has_experts) {
        if (const uint32_t n = r.integer("expert_count", 0, kMaxExperts, 0); n != 0)
            fail(ErrorKind::unsupported, "{}: {} = {}; '{}' runs here without experts only", r.path(),
                 r.key("expert_count"), n, h.architecture);
        return;
    }
    h.n_experts = r.integer("expert_count", 1, kMaxExperts);
    h.n_experts_used = r.integer("expert_used_count", 1, h.n_experts);
    h.n_ff_expert = r.integer("expert_feed_forward_length", 1, kMaxFf, h.n_ff / h.n_experts_used);
    if (h.n_ff_expert == 0)
        fail(ErrorKind::file, "{}: the key {} is missing, and {} does not tell it", r.path(),
             r.key("expert_feed_forward_length"), r.key("feed_forward_length"));
    r.only("expert_weights_scale", {1, 0});  // 0: not scaled
    r.only("expert_gating_func", {1, 0});    // 1: softmax; 0: the architecture's own
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
        a.has_experts ? r.integer("feed_forward_length", 0, kMaxFf, 0) : r.integer("feed_forward_length", 1, kMaxFf);
    h.context_length = r.integer("context_length", 1, kMaxContext);
    h.rms_eps = r.positive("attention.layer_norm_rms_epsilon", 1);
    read_attention(r, h);
    read_rope(file, r, h);
    read_experts(r, a.has_experts, h);
    h.n_vocab = read_vocab(file, r);

    r.only("attention.scale", {0, 1 / std::sqrt(static_cast<double>(h.head_dim))});  // 0: the default
    r.only("attention.sliding_window", {0});
    for (std::string_view factor : {"embedding_scale", "residual_scale", "logit_scale"}) r.only(factor, {1});
    if (!file.get_bool(r.key("attention.causal"), true))
        fail(ErrorKind::unsupported, "{}: {} is false; only models that look back run", r.path(),
             r.key("attention.causal"));
    return h;
}

}  // namespace ridge
