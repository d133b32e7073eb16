// Plans and writes synthetic models.
//
// Standard deviations: a matrix with rows of k has 1/sqrt(k), which keeps the size of what it multiplies. The two
// matrices of a layer that write to the residual stream have 1/sqrt(2 layers) of that, so that the stream's variance
// grows by a fixed amount through any depth. Embeddings and output have 2/sqrt(n_embd).
#include "measure/synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <regex>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "gguf/gguf.h"
#include "measure/synthetic_fill.h"
#include "measure/synthetic_mix.h"
#include "measure/synthetic_vocab.h"
#include "text/chat.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct Entry {
    SynthTensor tensor;
    TensorRole role = TensorRole::f32;
    uint32_t layer = 0;
};

// The tensors of a model, formats still open.
class Outline {
  public:
    explicit Outline(const ModelShape &shape) : s_(shape) {
        const double embedding = 2 / std::sqrt(static_cast<double>(s_.n_embd));
        add(TensorRole::token_embd, "token_embd.weight", {s_.n_embd, s_.n_vocab}, embedding);
        if (s_.rope_factor > 0) rope_factors();
        for (layer_ = 0; layer_ < s_.n_layers; layer_++) layer();
        layer_ = 0;
        vector("output_norm.weight", s_.n_embd, 1, 0.1);
        if (!s_.tied) add(TensorRole::output, "output.weight", {s_.n_embd, s_.n_vocab}, embedding);
    }
    std::vector<Entry> entries;

  private:
    void add(TensorRole role, std::string name, std::vector<uint64_t> shape, double sigma, double mean = 0) {
        Entry e;
        e.tensor.name = std::move(name);
        e.tensor.shape = std::move(shape);
        e.tensor.sigma = sigma;
        e.tensor.mean = mean;
        e.role = role;
        e.layer = layer_;
        entries.push_back(std::move(e));
    }
    std::string blk(std::string_view name) const { return fmt::format("blk.{}.{}", layer_, name); }
    void vector(std::string name, uint32_t n, double mean, double sigma) {
        add(TensorRole::f32, std::move(name), {n}, sigma, mean);
    }
    void matrix(TensorRole role, std::string_view name, uint32_t k, uint32_t n, double gain = 1, uint32_t experts = 1) {
        std::vector<uint64_t> shape{k, n};
        if (experts > 1) shape.push_back(experts);
        add(role, blk(name), std::move(shape), gain / std::sqrt(static_cast<double>(k)));
    }
    void projection(TensorRole role, std::string_view name, uint32_t n) {
        matrix(role, fmt::format("{}.weight", name), s_.n_embd, n);
        if (s_.has_qkv_bias()) vector(blk(fmt::format("{}.bias", name)), n, 0, 0.1);
    }

    void layer() {
        const double to_residual = 1 / std::sqrt(2.0 * s_.n_layers);
        const uint32_t q = s_.n_heads * s_.head_dim, kv = s_.n_kv_heads * s_.head_dim;
        vector(blk("attn_norm.weight"), s_.n_embd, 1, 0.1);
        projection(TensorRole::attn_q, "attn_q", q);
        projection(TensorRole::attn_k, "attn_k", kv);
        projection(TensorRole::attn_v, "attn_v", kv);
        if (s_.has_head_norms()) {
            vector(blk("attn_q_norm.weight"), s_.head_dim, 1, 0.1);
            vector(blk("attn_k_norm.weight"), s_.head_dim, 1, 0.1);
        }
        matrix(TensorRole::attn_output, "attn_output.weight", q, s_.n_embd, to_residual);
        vector(blk("ffn_norm.weight"), s_.n_embd, 1, 0.1);
        if (s_.n_experts == 0) {
            matrix(TensorRole::ffn_gate, "ffn_gate.weight", s_.n_embd, s_.n_ff);
            matrix(TensorRole::ffn_up, "ffn_up.weight", s_.n_embd, s_.n_ff);
            matrix(TensorRole::ffn_down, "ffn_down.weight", s_.n_ff, s_.n_embd, to_residual);
            return;
        }
        matrix(TensorRole::f32, "ffn_gate_inp.weight", s_.n_embd, s_.n_experts);
        matrix(TensorRole::expert_gate, "ffn_gate_exps.weight", s_.n_embd, s_.n_ff_expert, 1, s_.n_experts);
        matrix(TensorRole::expert_up, "ffn_up_exps.weight", s_.n_embd, s_.n_ff_expert, 1, s_.n_experts);
        matrix(TensorRole::expert_down, "ffn_down_exps.weight", s_.n_ff_expert, s_.n_embd, to_residual, s_.n_experts);
    }

    // Llama 3's factors: long waves are stretched by rope_factor, short ones not at all, those between in part.
    void rope_factors() {
        const uint32_t pairs = s_.head_dim / 2;
        vector("rope_freqs.weight", pairs, 0, 0);
        const double context = s_.rope_original_context, factor = static_cast<double>(s_.rope_factor);
        for (uint32_t j = 0; j < pairs; j++) {
            const double turn = std::pow(static_cast<double>(s_.rope_base), 2.0 * j / s_.head_dim);
            const double waves = context / (2 * std::numbers::pi * turn);  // in the original context
            const double share = std::clamp((waves - 1) / (4 - 1), 0.0, 1.0);
            entries.back().tensor.values.push_back(static_cast<float>(1 / ((1 - share) / factor + share)));
        }
    }

    const ModelShape &s_;
    uint32_t layer_ = 0;
};

struct Override {
    std::regex pattern;
    std::string text;
    Format format;
    bool used = false;
};

std::vector<Override> compile(const SynthOptions &options) {
    std::vector<Override> list;
    for (const auto &[text, format] : options.overrides) {
        try {
            list.push_back({std::regex(text), text, format});
        } catch (const std::regex_error &e) {
            fail(ErrorKind::usage, "the tensor pattern '{}' is no regular expression ({})", text, e.what());
        }
    }
    return list;
}

// What `quant` and `pure` ask for.
struct Wanted {
    const Mix *mix = nullptr;     // nullptr: pure
    Format format = Format::F32;  // of a pure file
};

bool same_name(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
        return std::toupper(static_cast<unsigned char>(x)) == std::toupper(static_cast<unsigned char>(y));
    });
}

Wanted parse_quant(const SynthOptions &options) {
    const FormatInfo *format = find_format(options.quant);
    if (options.pure) {
        if (format) return {nullptr, format->id};
        fail(ErrorKind::usage, "'{}' is not a format; a pure file is all one of {}", options.quant, format_names());
    }
    std::string_view name = options.quant;  // the short names mean the same as elsewhere
    if (same_name(name, "Q3_K") || same_name(name, "Q4_K") || same_name(name, "Q5_K"))
        return parse_quant({.quant = options.quant + "_M"});
    for (const Mix &m : mixes())
        if (same_name(m.name, name)) return {&m, m.base};
    fail(ErrorKind::usage, "there is no mix of formats called '{}'; there are {}{}", options.quant,
         fmt::join(synthetic_mixes(), ", "),
         format ? fmt::format("; --pure makes a file that is all {}", format->name) : std::string());
}

// Formats that the overrides, the mix and the length of the rows give.
void choose_format(Entry &e, const ModelShape &shape, const Wanted &wanted, std::vector<Override> &overrides,
                   std::vector<std::string> &notes) {
    SynthTensor &t = e.tensor;
    const uint64_t k = t.shape[0];
    if (t.shape.size() >= 2) {
        Override *match = nullptr;
        for (Override &o : overrides) {
            if (!std::regex_search(t.name, o.pattern)) continue;
            o.used = true;
            if (!match) match = &o;
        }
        if (match) {
            const FormatInfo &f = info(match->format);
            if (k % f.block != 0)
                fail(ErrorKind::usage, "the tensor {} cannot be {}: its rows of {} do not divide into blocks of {}",
                     t.name, f.name, k, f.block);
            t.format = f.id;
            return;
        }
    }
    if (e.role == TensorRole::f32) return;
    const Format first = wanted.mix ? mixed_format(*wanted.mix, shape, e.role, e.layer, k) : wanted.format;
    t.format = fitting_format(first, k);
    if (t.format != first)
        notes.push_back(fmt::format("{}: {} is no multiple of {}: {} instead of {}", t.name, k, info(first).block,
                                    info(t.format).name, info(first).name));
}

void add_metadata(gguf::Writer &w, const ModelShape &s, const SynthOptions &options, uint32_t file_type) {
    const std::string arch(s.architecture);
    auto key = [&](std::string_view name) { return fmt::format("{}.{}", arch, name); };
    w.add_string("general.architecture", arch);
    w.add_string("general.type", "model");
    w.add_string("general.name", fmt::format("synthetic {} {}", s.name, options.quant));
    w.add_string("general.description",
                 fmt::format("random weights, seed {}: for measuring and testing only", options.seed));
    w.add_u32("general.file_type", file_type);
    w.add_u32("general.quantization_version", 2);
    w.add_u32(key("block_count"), s.n_layers);
    w.add_u32(key("context_length"), s.context_length);
    w.add_u32(key("embedding_length"), s.n_embd);
    w.add_u32(key("feed_forward_length"), s.n_ff);
    w.add_u32(key("attention.head_count"), s.n_heads);
    w.add_u32(key("attention.head_count_kv"), s.n_kv_heads);
    w.add_u32(key("attention.key_length"), s.head_dim);
    w.add_u32(key("attention.value_length"), s.head_dim);
    w.add_f32(key("attention.layer_norm_rms_epsilon"), s.rms_eps);
    w.add_f32(key("rope.freq_base"), s.rope_base);
    w.add_u32(key("rope.dimension_count"), s.head_dim);
    w.add_u32(key("vocab_size"), s.n_vocab);
    if (s.n_experts > 0) {
        w.add_u32(key("expert_count"), s.n_experts);
        w.add_u32(key("expert_used_count"), s.n_experts_used);
        w.add_u32(key("expert_feed_forward_length"), s.n_ff_expert);
    }
    const SyntheticVocab v = synthetic_vocab(s.n_vocab);
    w.add_string("tokenizer.ggml.model", "gpt2");
    w.add_string("tokenizer.ggml.pre", s.pre_tokenizer);
    w.add_strings("tokenizer.ggml.tokens", v.tokens);
    w.add_i32s("tokenizer.ggml.token_type", v.types);
    w.add_strings("tokenizer.ggml.merges", v.merges);
    w.add_u32("tokenizer.ggml.bos_token_id", v.endoftext);
    w.add_u32("tokenizer.ggml.eos_token_id", v.im_end);
    w.add_u32("tokenizer.ggml.padding_token_id", v.endoftext);
    w.add_bool("tokenizer.ggml.add_bos_token", false);
    w.add_string("tokenizer.chat_template", text::kPlainChatMl);
}

void check_target(const fs::path &path, uint64_t bytes, bool force) {
    std::error_code error;
    if (fs::exists(path, error)) {
        if (!fs::is_regular_file(path, error))
            fail(ErrorKind::usage, "{} is there and is no plain file; name another", path.string());
        if (!force) fail(ErrorKind::usage, "{} is there; --force overwrites it", path.string());
    }
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const fs::space_info space = fs::space(folder, error);
    if (error)
        fail(ErrorKind::file, "{}: the folder {} cannot be written to: {}", path.string(), folder.string(),
             error.message());
    if (space.available < bytes)
        fail(ErrorKind::limit, "{}: the file takes {:.2f} GB and the disk has {:.2f} GB free", path.string(),
             static_cast<double>(bytes) / 1e9, static_cast<double>(space.available) / 1e9);
}

}  // namespace

std::vector<std::string_view> synthetic_mixes() {
    std::vector<std::string_view> names;
    for (const Mix &m : mixes()) names.push_back(m.name);
    return names;
}

SynthPlan plan_synthetic(const SynthOptions &options) {
    const ModelShape &shape = synthetic_shape(options.like);
    const Wanted wanted = parse_quant(options);
    std::vector<Override> overrides = compile(options);
    SynthPlan plan;
    plan.file_type = wanted.mix ? wanted.mix->file_type : pure_file_type(wanted.format);
    Outline outline(shape);
    for (Entry &e : outline.entries) {
        choose_format(e, shape, wanted, overrides, plan.notes);
        plan.tensors.push_back(std::move(e.tensor));
    }
    for (const Override &o : overrides)
        if (!o.used)
            fail(ErrorKind::usage, "the tensor pattern '{}' matches no matrix of {} (norms and biases stay F32)",
                 o.text, shape.name);
    return plan;
}

SynthPlan write_synthetic(const fs::path &path, const SynthOptions &options) {
    SynthPlan plan = plan_synthetic(options);
    gguf::Writer writer;
    add_metadata(writer, synthetic_shape(options.like), options, plan.file_type);
    std::vector<Filler> fillers;
    for (const SynthTensor &t : plan.tensors) {
        writer.add_tensor(t.name, t.format, t.shape);
        fillers.emplace_back(t.format, t.mean, t.sigma, stream_key(options.seed, t.name));
    }
    constexpr uint64_t kHeader = 32u << 20;  // more than the vocabulary of any shape takes
    check_target(path, writer.data_bytes() + kHeader, options.force);

    const unsigned threads = options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency());
    const auto fill = [&](size_t index, uint64_t offset, std::span<std::byte> out) {
        const std::vector<float> &values = plan.tensors[index].values;
        if (values.empty())
            fillers[index](offset, out);
        else
            std::memcpy(out.data(), reinterpret_cast<const std::byte *>(values.data()) + offset, out.size());
    };
    writer.write(path, fill, threads, options.progress);
    return plan;
}

}  // namespace ridge
