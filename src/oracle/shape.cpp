#include "oracle/shape.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge::oracle {
namespace {

constexpr auto kAdjacent = RopePairs::adjacent;

const Architecture kArchitectures[] = {
    {.name = "llama", .pairs = kAdjacent},
    {.name = "mistral3", .pairs = kAdjacent},
    {.name = "granite", .pairs = kAdjacent},
    {.name = "qwen2"},
    {.name = "qwen3", .qk_norms = true},
    {.name = "qwen3moe", .qk_norms = true},
    {.name = "qwen2moe", .normalise_routes = false, .shared_expert = true},
    {.name = "phi3"},
    {.name = "olmo2", .norms_before = false, .norms_after = true, .qk_norms = true, .period = 4, .local_plain = true},
    {.name = "gemma2",
     .unit = Unit::gelu,
     .norms_after = true,
     .embedding_by_root = true,
     .period = 2,
     .layers_scaled_by_width = 46},
    {.name = "gemma3",
     .unit = Unit::gelu,
     .norms_after = true,
     .qk_norms = true,
     .embedding_by_root = true,
     .period = 6,
     .local_base = 10000,
     .local_plain = true,
     .layers_scaled_by_width = 62},
    {.name = "gpt-oss",
     .unit = Unit::clamped,
     .ffn_norm = "post_attention_norm",
     .period = 2,
     .yarn_whole_pairs = false},
};

// Keys under `<architecture>.`.
class Keys {
  public:
    explicit Keys(const gguf::File &file) : file_(file), prefix_(file.get_string("general.architecture")) {}

    std::string key(std::string_view name) const { return prefix_ + "." + std::string(name); }
    bool has(std::string_view name) const { return file_.find(key(name)) != nullptr; }
    size_t count(std::string_view name) const { return file_.get_u64(key(name)); }
    size_t count(std::string_view name, size_t absent) const { return file_.get_u64(key(name), absent); }
    double real(std::string_view name) const { return file_.get_f64(key(name)); }
    double real(std::string_view name, double absent) const { return file_.get_f64(key(name), absent); }
    std::string_view text(std::string_view name, std::string_view absent) const {
        return file_.get_string(key(name), absent);
    }
    const gguf::Value *value(std::string_view name) const { return file_.find(key(name)); }

  private:
    const gguf::File &file_;
    std::string prefix_;
};

std::vector<bool> read_pattern(const Keys &keys, const Shape &s) {
    std::vector<bool> local(s.layers, false);
    if (s.window == 0) return local;
    size_t period = s.arch.period;
    if (const gguf::Value *v = keys.value("attention.sliding_window_pattern")) {
        if (v->type == gguf::Type::array) {  // of a flag per layer
            const auto flags = v->as_ints();
            if (!flags || flags->size() != s.layers)
                fail(ErrorKind::file, "the oracle reads {} as a flag for each of {} layers, not {}",
                     keys.key("attention.sliding_window_pattern"), s.layers, gguf::preview(*v));
            std::transform(flags->begin(), flags->end(), local.begin(), [](int64_t flag) { return flag != 0; });
            return local;
        }
        period = keys.count("attention.sliding_window_pattern");
    }
    for (size_t layer = 0; layer < s.layers; layer++) local[layer] = period == 0 || layer % period != period - 1;
    return local;
}

// The magnitude that files of longrope state as rope.scaling.attn_factor, and those of yarn as yarn_attn_factor where
// it is not the usual one. Under yarn attn_factor multiplies the usual one.
double read_magnitude(const Keys &keys, const Shape &s, size_t context_length) {
    if (keys.has("rope.scaling.yarn_attn_factor")) return keys.real("rope.scaling.yarn_attn_factor");
    const double given = keys.real("rope.scaling.attn_factor", 1);
    if (s.scaling == RopeScaling::longrope && keys.has("rope.scaling.attn_factor")) return given;
    if (s.scaling == RopeScaling::longrope) {
        const double original = static_cast<double>(s.original_context);
        return longrope_magnitude(static_cast<double>(context_length) / original, original);
    }
    if (s.scaling != RopeScaling::yarn) return 1;
    const double all = keys.real("rope.scaling.yarn_log_multiplier", 0);  // "mscale_all_dim"; beside it "mscale" is 1
    return given * yarn_magnitude(s.factor) / (s.factor <= 1 ? 1 : 1 + 0.1 * all * std::log(s.factor));
}

void read_rope(const gguf::File &file, const Keys &keys, Shape &s) {
    s.rotated = keys.count("rope.dimension_count", s.head_dim);
    if (s.rotated % 2 != 0 || s.rotated > s.head_dim)
        fail(ErrorKind::file, "the oracle cannot turn {} of {} elements of a head", s.rotated, s.head_dim);
    s.base = keys.real("rope.freq_base", 10000);
    s.local_base = keys.real("rope.freq_base_swa", s.arch.local_base != 0 ? s.arch.local_base : s.base);
    const size_t context_length = keys.count("context_length");
    s.original_context = keys.count("rope.scaling.original_context_length", context_length);
    s.beta_fast = keys.real("rope.scaling.yarn_beta_fast", 32);
    s.beta_slow = keys.real("rope.scaling.yarn_beta_slow", 1);

    // Without a type a factor is linear; files of longrope often have no type, but always the tensors.
    const std::string_view type = keys.text("rope.scaling.type", "linear");
    const double factor = keys.real("rope.scaling.factor", keys.real("rope.scale_linear", 1));
    if (type == "longrope" || file.find_tensor("rope_factors_long.weight"))
        s.scaling = RopeScaling::longrope;
    else if (type == "linear")
        s.scaling = RopeScaling::linear;
    else if (type == "yarn")
        s.scaling = RopeScaling::yarn;
    else if (type != "none")
        fail(ErrorKind::unsupported, "the oracle knows no {} '{}'; it knows none, linear, yarn and longrope",
             keys.key("rope.scaling.type"), gguf::printable(type));
    if (factor != 0 && s.scaling != RopeScaling::none) s.factor = factor;
    s.magnitude = read_magnitude(keys, s, context_length);
}

Architecture row_of(std::string_view name) {
    for (const Architecture &a : kArchitectures)
        if (a.name == name) return a;
    fail(ErrorKind::unsupported, "the oracle has no forward pass for the architecture '{}'", gguf::printable(name));
}

}  // namespace

Shape read_shape(const gguf::File &file) {
    Shape s;
    s.arch = row_of(file.get_string("general.architecture"));
    const Keys keys(file);
    s.layers = keys.count("block_count");
    s.width = keys.count("embedding_length");
    s.heads = keys.count("attention.head_count");
    s.kv_heads = keys.count("attention.head_count_kv", s.heads);
    if (s.heads == 0 || s.kv_heads == 0 || s.heads % s.kv_heads != 0)
        fail(ErrorKind::file, "the oracle cannot share {} heads of k and v among {} of q", s.kv_heads, s.heads);
    s.head_dim = keys.count("attention.key_length", s.width / s.heads);
    s.eps = keys.real("attention.layer_norm_rms_epsilon");
    const gguf::Tensor *table = file.find_tensor("token_embd.weight");
    if (!table) fail(ErrorKind::file, "the oracle finds no tensor token_embd.weight");
    s.vocab = table->shape[1];

    s.experts = keys.count("expert_count", 0);
    if (s.experts != 0) s.experts_used = keys.count("expert_used_count");
    if (s.experts_used > s.experts)
        fail(ErrorKind::file, "the oracle cannot choose {} of {} experts", s.experts_used, s.experts);

    s.embedding_scale = s.arch.embedding_by_root ? std::sqrt(static_cast<double>(s.width)) : 1;
    s.embedding_scale = keys.real("embedding_scale", s.embedding_scale);
    s.residual_scale = keys.real("residual_scale", 1);
    s.logit_divisor = keys.real("logit_scale", 1);
    if (s.layers == s.arch.layers_scaled_by_width)
        s.attention_scale = 1 / std::sqrt(static_cast<double>(s.width / s.heads));
    s.attention_scale = keys.real("attention.scale", s.attention_scale);
    const bool capped = s.arch.name == "gemma2";  // also where a file does not say so
    s.score_cap = keys.real("attn_logit_softcapping", capped ? 50 : 0);
    s.logit_cap = keys.real("final_logit_softcapping", capped ? 30 : 0);
    s.window = keys.count("attention.sliding_window", s.arch.name == "gemma2" ? 4096 : 0);
    s.local = read_pattern(keys, s);
    s.temperature_slope = keys.real("attention.temperature_scale", 0);
    read_rope(file, keys, s);
    return s;
}

double Shape::temperature(int32_t position) const {
    if (temperature_slope == 0) return 1;
    return 1 + temperature_slope * std::log(1 + std::floor(position / static_cast<double>(original_context)));
}

Turns layer_turns(const Shape &s, Weights &weights, bool local, size_t context) {
    const double base = local ? s.local_base : s.base;
    Reals f = rope_frequencies(s.rotated, base);
    if (local && s.arch.local_plain) return {f, 1};

    std::string divisors = "rope_freqs.weight";
    if (s.scaling == RopeScaling::longrope)
        divisors = context > s.original_context ? "rope_factors_long.weight" : "rope_factors_short.weight";
    if (s.scaling == RopeScaling::longrope || weights.has(divisors)) {
        const Reals d = weights.vector(divisors, f.size());
        for (size_t i = 0; i < f.size(); i++) f[i] /= d[i];
    }
    if (s.scaling == RopeScaling::linear)
        for (double &x : f) x /= s.factor;
    if (s.scaling == RopeScaling::yarn)
        f = yarn_frequencies({.base = base,
                              .factor = s.factor,
                              .original_context = static_cast<double>(s.original_context),
                              .beta_fast = s.beta_fast,
                              .beta_slow = s.beta_slow,
                              .whole_pairs = s.arch.yarn_whole_pairs},
                             f);
    return {f, s.magnitude};
}

}  // namespace ridge::oracle
