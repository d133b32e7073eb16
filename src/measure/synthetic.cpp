// Plans and writes synthetic models: formats for the tensors of the outline, metadata as real files have it, the data.
#include "measure/synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <regex>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "gguf/gguf.h"
#include "measure/synthetic_fill.h"
#include "measure/synthetic_mix.h"
#include "measure/synthetic_outline.h"
#include "measure/synthetic_vocab.h"
#include "text/chat.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

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

ModelShape shape_of(const SynthOptions &options) {
    ModelShape s = synthetic_shape(options.like);
    if (options.layers > 0) s.n_layers = options.layers;
    if (options.vocab > 0 && options.vocab < 259)
        fail(ErrorKind::usage, "a vocabulary of {} is too small: 256 bytes and three control tokens are the least",
             options.vocab);
    if (options.vocab > 0) s.n_vocab = options.vocab;
    return s;
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
void choose_format(OutlinedTensor &e, const ModelShape &shape, const Wanted &wanted, std::vector<Override> &overrides,
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

// A list of whether each layer's window slides, as GGUF writers make it: an array of bool.
void add_window_pattern(gguf::Writer &w, const std::string &key, const ModelShape &s) {
    std::vector<std::byte> slides(s.n_layers);
    for (uint32_t i = 0; i < s.n_layers; i++) slides[i] = std::byte{(i + 1) % s.features.window.period != 0};
    gguf::Value list;
    list.type = gguf::Type::array, list.element = gguf::Type::boolean;
    list.count = list.bytes = slides.size(), list.data = slides.data();
    w.add_value(key, list);
}

void add_rope(gguf::Writer &w, const std::string &prefix, const ModelShape &s) {
    using enum ModelFeatures::Stretch;
    const ModelFeatures::Rope &rope = s.features.rope;
    w.add_f32(prefix + "freq_base", s.rope_base);
    w.add_u32(prefix + "dimension_count", s.n_rot());
    if (rope.stretch == linear || rope.stretch == yarn) {
        w.add_string(prefix + "scaling.type", rope.stretch == linear ? "linear" : "yarn");
        w.add_f32(prefix + "scaling.factor", rope.factor);
    }
    if (rope.stretch == yarn || rope.stretch == longrope)
        w.add_u32(prefix + "scaling.original_context_length", rope.original_context);
    if (rope.stretch == yarn && rope.log_multiplier > 0)
        w.add_f32(prefix + "scaling.yarn_log_multiplier", rope.log_multiplier);
    if (rope.stretch == longrope) {  // its files name no type
        const double original = rope.original_context, stretch = s.context_length / original;
        w.add_f32(prefix + "scaling.attn_factor",
                  static_cast<float>(std::sqrt(1 + std::log(stretch) / std::log(original))));
    }
}

// What only some architectures have.
void add_features(gguf::Writer &w, const std::string &arch, const ModelShape &s) {
    const auto key = [&](std::string_view name) { return fmt::format("{}.{}", arch, name); };
    const auto number = [&](std::string_view name, float x) {
        if (x > 0) w.add_f32(key(name), x);
    };
    const ModelFeatures &f = s.features;
    if (f.window.size > 0 || s.has(Part::fused)) w.add_u32(key("attention.sliding_window"), f.window.size);
    if (f.window.period > 0) add_window_pattern(w, key("attention.sliding_window_pattern"), s);
    number("attn_logit_softcapping", f.caps.scores);
    number("final_logit_softcapping", f.caps.logits);
    number("embedding_scale", f.scales.embedding);
    number("residual_scale", f.scales.residual);
    number("attention.scale", f.scales.attention);
    number("logit_scale", f.scales.logits);
    number("attention.temperature_scale", f.temperature);
    if (s.n_experts == 0) return;
    w.add_u32(key("expert_count"), s.n_experts);
    w.add_u32(key("expert_used_count"), s.n_experts_used);
    if (s.architecture != "llama") w.add_u32(key("expert_feed_forward_length"), s.n_ff_expert);
    if (s.n_ff_shared > 0) w.add_u32(key("expert_shared_feed_forward_length"), s.n_ff_shared);
}

void add_metadata(gguf::Writer &w, const ModelShape &s, const SynthOptions &options, uint32_t file_type) {
    const std::string arch(s.architecture);
    auto key = [&](std::string_view name) { return fmt::format("{}.{}", arch, name); };
    w.add_string("general.architecture", arch);
    w.add_string("general.type", "model");
    std::string name = fmt::format("synthetic {} {}", s.name, options.quant);
    if (options.layers > 0) name += fmt::format(", {} layers", s.n_layers);
    if (options.vocab > 0) name += fmt::format(", {} tokens", s.n_vocab);
    w.add_string("general.name", name);
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
    add_rope(w, key("rope."), s);
    w.add_u32(key("vocab_size"), s.n_vocab);
    add_features(w, arch, s);
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
    const ModelShape shape = shape_of(options);
    const Wanted wanted = parse_quant(options);
    std::vector<Override> overrides = compile(options);
    SynthPlan plan;
    plan.file_type = wanted.mix ? wanted.mix->file_type : pure_file_type(wanted.format);
    for (OutlinedTensor &e : outline(shape)) {
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
    add_metadata(writer, shape_of(options), options, plan.file_type);
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
