// ridge inspect: what is in a GGUF file, without reading its weights.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "gguf/gguf.h"
#include "gguf/printable.h"

namespace ridge {
namespace {

using gguf::File;
using gguf::printable;
using gguf::Tensor;
using gguf::Value;
using Json = nlohmann::ordered_json;

constexpr uint64_t kContext = 1024;  // tokens for which the size of the KV cache is shown

struct Options {
    std::string path;
    bool tensors = false;
    bool json = false;
};

// All tensors of one format.
struct Share {
    std::string_view format;
    uint64_t tensors = 0, elements = 0, bytes = 0;
};

struct Summary {
    std::vector<Share> formats;  // the largest first
    Share total;
    std::optional<uint64_t> kv_bytes;  // f16 keys and values of kContext tokens
    double bits_per_weight() const {
        return total.elements == 0 ? 0.0 : 8.0 * static_cast<double>(total.bytes) / static_cast<double>(total.elements);
    }
};

std::optional<uint64_t> integer(const File &file, const std::string &key) {
    const Value *v = file.find(key);
    return v == nullptr ? std::nullopt : v->as_u64();
}

// Elements of keys and values that one token adds over all layers. Empty where the keys are absent or make no sense:
// the numbers come from the file, and nothing has compared them with its tensors.
std::optional<uint64_t> kv_elements(const File &file) {
    const Value *name = file.find("general.architecture");
    if (name == nullptr || !name->as_string()) return std::nullopt;
    const std::string arch(*name->as_string());
    constexpr uint64_t kMost = uint64_t{1} << 20;  // of each number: their products stay below 2^64
    auto number = [&](const std::string &key) {
        const auto n = integer(file, arch + key);
        return n && *n <= kMost ? n : std::nullopt;
    };
    const auto layers = number(".block_count"), heads = number(".attention.head_count");
    auto head_bytes = [&](const std::string &key) -> std::optional<uint64_t> {
        if (const auto n = number(key)) return n;
        const auto width = number(".embedding_length");
        return width && heads && *heads > 0 ? std::optional(*width / *heads) : std::nullopt;
    };
    const auto k = head_bytes(".attention.key_length"), v = head_bytes(".attention.value_length");
    if (!layers || !k || !v) return std::nullopt;

    const Value *kv_heads = file.find(arch + ".attention.head_count_kv");
    uint64_t sum = 0;  // of the KV heads of all layers
    if (kv_heads != nullptr && kv_heads->type == gguf::Type::array) {
        const auto per_layer = kv_heads->as_ints();
        if (!per_layer || per_layer->size() != *layers) return std::nullopt;
        for (int64_t n : *per_layer) {
            if (n < 0 || n > static_cast<int64_t>(kMost)) return std::nullopt;
            sum += static_cast<uint64_t>(n);
        }
    } else {
        const auto n = kv_heads != nullptr ? number(".attention.head_count_kv") : heads;
        if (!n) return std::nullopt;
        sum = *layers * *n;
    }
    uint64_t out = 0;
    if (__builtin_mul_overflow(sum, *k + *v, &out) || out > (uint64_t{1} << 50)) return std::nullopt;
    return out;
}

Summary summarize(const File &file) {
    std::map<std::string_view, Share> by_format;
    Summary s;
    for (const Tensor &t : file.tensors()) {
        for (Share *share : {&by_format[t.format_name], &s.total}) {
            share->tensors++;
            share->elements += t.elements();
            share->bytes += t.bytes;
        }
    }
    for (auto &[name, share] : by_format) {
        share.format = name;
        s.formats.push_back(share);
    }
    std::stable_sort(s.formats.begin(), s.formats.end(),
                     [](const Share &a, const Share &b) { return a.bytes > b.bytes; });
    if (const auto n = kv_elements(file)) s.kv_bytes = *n * kContext * 2;
    return s;
}

std::string size_text(uint64_t bytes) {
    static constexpr const char *kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto v = static_cast<double>(bytes);
    size_t unit = 0;
    for (; v >= 1024; unit++) v /= 1024;
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", v, kUnits[unit]);
}

std::string shape_text(const Tensor &t) {
    return fmt::format("{}", fmt::join(t.shape.begin(), t.shape.begin() + t.n_dims, " x "));
}

double percent(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string string_of(const File &file, std::string_view key) {
    const Value *v = file.find(key);
    if (v == nullptr) return "-";
    const auto s = v->as_string();
    return s ? printable(*s) : gguf::preview(*v);
}

std::string as_text(const File &file, const Summary &s, bool tensors) {
    std::string out;
    auto line = [&]<class... Args>(fmt::format_string<Args...> text, Args &&...args) {
        fmt::format_to(std::back_inserter(out), text, std::forward<Args>(args)...);
        out += '\n';
    };
    for (const auto &p : file.paths()) line("{:<16}{}", "file", printable(p.native(), std::string::npos));
    line("{:<16}{}", "size", size_text(file.file_bytes()));
    line("{:<16}GGUF version {}, alignment {}", "container", file.version(), file.alignment());
    line("{:<16}{}", "architecture", string_of(file, "general.architecture"));
    line("{:<16}{}", "name", string_of(file, "general.name"));
    line("{:<16}{} in {} tensors", "parameters", s.total.elements, s.total.tensors);
    line("{:<16}{:.3f}", "bits per weight", s.bits_per_weight());
    line("{:<16}{} for the weights{}", "memory", size_text(s.total.bytes),
         s.kv_bytes
             ? fmt::format(", and {} for keys and values (f16) of every {} tokens", size_text(*s.kv_bytes), kContext)
             : std::string());

    line("\n{} metadata entries", file.metadata().size());
    for (const auto &[key, v] : file.metadata()) line("  {} ({}) = {}", printable(key), type_text(v), preview(v));

    line("\n{:<10}{:>8}{:>18}{:>14}{:>9}", "format", "tensors", "parameters", "bytes", "share");
    for (const Share &f : s.formats)
        line("{:<10}{:>8}{:>18}{:>14}{:>8.2f}%", f.format, f.tensors, f.elements, size_text(f.bytes),
             percent(f.bytes, s.total.bytes));
    if (!tensors) return out;
    line("\ntensors: name, shape (fastest first), format, bytes, offset{}", file.paths().size() > 1 ? " in part" : "");
    for (const Tensor &t : file.tensors())
        line("  {:<40} {:<24} {:<8} {:>12} {:>14}{}", printable(t.name), shape_text(t), t.format_name, t.bytes,
             t.offset, file.paths().size() > 1 ? fmt::format(" {}", t.file + 1) : std::string());
    return out;
}

// A scalar, or what preview() shows of it where JSON has no such value (NaN, infinities).
Json json_of(const Value &v) {
    if (const auto b = v.as_bool()) return *b;
    if (const auto s = v.as_string()) return std::string(*s);
    if (const auto u = v.as_u64()) return *u;
    if (const auto i = v.as_i64()) return *i;
    if (const auto f = v.as_f64(); f && std::isfinite(*f)) return *f;
    return preview(v);
}

Json as_json(const File &file, const Summary &s, bool tensors) {
    Json out;
    // Paths and strings may be no UTF-8; dump() below replaces what is not.
    for (const auto &p : file.paths()) out["files"].push_back(p.string());
    out["bytes"] = file.file_bytes();
    out["version"] = file.version();
    out["alignment"] = file.alignment();
    auto text = [&](std::string_view key) {
        const Value *v = file.find(key);
        return v != nullptr && v->as_string() ? Json(std::string(*v->as_string())) : Json(nullptr);
    };
    out["architecture"] = text("general.architecture");
    out["name"] = text("general.name");
    out["parameters"] = s.total.elements;
    out["bits_per_weight"] = s.bits_per_weight();
    out["weight_bytes"] = s.total.bytes;
    out["kv_f16_bytes_per_1024_tokens"] = s.kv_bytes ? Json(*s.kv_bytes) : Json(nullptr);
    out["metadata"] = Json::array();
    for (const auto &[key, v] : file.metadata()) {
        Json entry{{"key", std::string(key)}, {"type", type_text(v)}};
        if (v.type == gguf::Type::array) {
            entry["count"] = v.count;
            entry["preview"] = preview(v);
        } else {
            entry["value"] = json_of(v);
        }
        out["metadata"].push_back(std::move(entry));
    }
    out["formats"] = Json::array();
    for (const Share &f : s.formats)
        out["formats"].push_back({{"format", f.format},
                                  {"tensors", f.tensors},
                                  {"parameters", f.elements},
                                  {"bytes", f.bytes},
                                  {"share", percent(f.bytes, s.total.bytes) / 100}});
    if (!tensors) return out;
    out["tensors"] = Json::array();
    for (const Tensor &t : file.tensors())
        out["tensors"].push_back({{"name", std::string(t.name)},
                                  {"shape", std::vector<uint64_t>(t.shape.begin(), t.shape.begin() + t.n_dims)},
                                  {"format", t.format_name},
                                  {"bytes", t.bytes},
                                  {"offset", t.offset},
                                  {"part", t.file + 1}});
    return out;
}

void inspect(const Options &options) {
    const File file = File::open(options.path);
    const Summary s = summarize(file);
    // ensure_ascii: control characters of a hostile name, C1 and direction marks too, reach no terminal.
    std::string out = options.json
                          ? as_json(file, s, options.tensors).dump(2, ' ', true, Json::error_handler_t::replace) + "\n"
                          : as_text(file, s, options.tensors);
    fmt::print("{}", out);
}

}  // namespace

void add_inspect(CLI::App &app) {
    auto options = std::make_shared<Options>();
    CLI::App *cmd =
        app.add_subcommand("inspect", "Show what is in a GGUF file: metadata, formats, sizes, memory needed");
    cmd->add_option("file", options->path, "The file; of a split set, any part")->required()->type_name("FILE");
    cmd->add_flag("--tensors", options->tensors, "List every tensor: name, shape, format, bytes, offset");
    cmd->add_flag("--json", options->json, "Print the same as JSON");
    cmd->callback([options] { inspect(*options); });
}

}  // namespace ridge
