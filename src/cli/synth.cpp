// ridge synth: writes a model of known shape with random weights.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "measure/synthetic.h"

namespace ridge {
namespace {

struct Options {
    SynthOptions synth;
    std::string out;
    std::vector<std::string> tensors;  // "PATTERN=FORMAT"
    bool list = false;
    bool dry_run = false;
};

// The last '=' divides: patterns may hold one, formats do not.
std::pair<std::string, Format> parse_override(const std::string &text) {
    const size_t at = text.rfind('=');
    if (at == std::string::npos || at == 0)
        fail(ErrorKind::usage, "--tensor '{}': expected PATTERN=FORMAT, as in 'ffn_down=Q6_K'", text);
    const FormatInfo *f = find_format(std::string_view(text).substr(at + 1));
    if (f) return {text.substr(0, at), f->id};
    fail(ErrorKind::usage, "--tensor '{}': '{}' is not a format; there are {}", text, text.substr(at + 1),
         format_names());
}

uint64_t elements(const SynthTensor &t) {
    uint64_t n = 1;
    for (uint64_t d : t.shape) n *= d;
    return n;
}

uint64_t bytes(const SynthTensor &t) { return row_bytes(t.format, t.shape[0]) * (elements(t) / t.shape[0]); }

void print_list() {
    fmt::print("{:<15}{:<11}{:>7}{:>7}{:>7}{:>7}{:>5}{:>6}{:>9}{:>9}\n", "--like", "kind", "layers", "embd", "ff",
               "heads", "kv", "head", "vocab", "experts");
    for (const ModelShape &s : synthetic_shapes())
        fmt::print("{:<15}{:<11}{:>7}{:>7}{:>7}{:>7}{:>5}{:>6}{:>9}{:>9}\n", s.name, s.architecture, s.n_layers,
                   s.n_embd, s.n_experts ? s.n_ff_expert : s.n_ff, s.n_heads, s.n_kv_heads, s.head_dim, s.n_vocab,
                   s.n_experts ? fmt::format("{}/{}", s.n_experts_used, s.n_experts) : "-");
    fmt::print("\n--quant: {}\n--quant with --pure, --tensor: {}\n", fmt::join(synthetic_mixes(), " "),
               format_names(" "));
}

void print_plan(const SynthPlan &plan) {
    // One line for all tensors that miss their format in the same way would hide which; the notes are few or alike.
    constexpr size_t kShown = 6;
    for (size_t i = 0; i < std::min(plan.notes.size(), kShown); i++)
        write_note(fmt::format("note: {}\n", plan.notes[i]));
    if (plan.notes.size() > kShown) write_note(fmt::format("note: and {} tensors more\n", plan.notes.size() - kShown));

    std::map<std::string_view, std::pair<uint64_t, uint64_t>> by_format;  // tensors, bytes
    uint64_t all_bytes = 0, all_elements = 0;
    for (const SynthTensor &t : plan.tensors) {
        auto &[count, size] = by_format[info(t.format).name];
        count++, size += bytes(t);
        all_bytes += bytes(t), all_elements += elements(t);
    }
    for (const auto &[name, share] : by_format)
        fmt::print("{:<10}{:>6} tensors {:>10.2f} MB\n", name, share.first, static_cast<double>(share.second) / 1e6);
    fmt::print("{:<10}{:>6} tensors {:>10.2f} MB  {:.3f} bits per weight\n", "all", plan.tensors.size(),
               static_cast<double>(all_bytes) / 1e6,
               8.0 * static_cast<double>(all_bytes) / static_cast<double>(all_elements));
}

void synth(Options &o) {
    if (o.list) return print_list();
    for (const std::string &t : o.tensors) o.synth.overrides.push_back(parse_override(t));
    if (o.dry_run) return print_plan(plan_synthetic(o.synth));
    if (o.out.empty()) fail(ErrorKind::usage, "-o FILE is missing; --list shows what can be made, --dry-run how large");

    const auto start = std::chrono::steady_clock::now();
    const InterruptGuard guard;
    SynthPlan plan;
    {
        Progress progress("writing", "MB", 1e6);
        o.synth.progress = [&](uint64_t done, uint64_t total) {
            if (InterruptGuard::raised()) throw CLI::RuntimeError(130);  // the writer leaves nothing behind
            progress.show(done, total);
        };
        plan = write_synthetic(o.out, o.synth);
    }
    print_plan(plan);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto size = static_cast<double>(std::filesystem::file_size(o.out));
    fmt::print("{}: {:.2f} GB in {:.1f} s ({:.2f} GB/s)\n", printable(o.out), size / 1e9, seconds,
               size / 1e9 / seconds);
}

}  // namespace

void add_synth(CLI::App &app) {
    auto o = std::make_shared<Options>();
    CLI::App *cmd = app.add_subcommand(
        "synth", "Write a model of a known shape with random weights, to measure and test what cannot be downloaded");
    cmd->add_option("--like", o->synth.like, "The model whose shape it has (--list)")->capture_default_str();
    cmd->add_option("--quant", o->synth.quant, "Mix of formats (--list)")->capture_default_str();
    cmd->add_flag("--pure", o->synth.pure, "--quant names a format, and every matrix but routers is in it");
    cmd->add_option("--tensor", o->tensors, "Tensors whose name matches the regular expression are in this format")
        ->allow_extra_args(false)
        ->type_name("PATTERN=FORMAT");
    cmd->add_option("--layers", o->synth.layers, "So many layers instead of the model's, of the same shape")
        ->check(CLI::Range(1u, 1000u));
    cmd->add_option("--vocab", o->synth.vocab, "So many tokens instead of the model's")->check(positive_number());
    cmd->add_option("-o,--out", o->out, "The file to write")->type_name("FILE");
    cmd->add_option("--seed", o->synth.seed, "Same seed, same bytes")->capture_default_str();
    cmd->add_option("-t,--threads", o->synth.threads, "Threads; 0: as many as the machine has")
        ->check(CLI::Range(0u, 1024u))
        ->capture_default_str();
    cmd->add_flag("--force", o->synth.force, "Overwrite FILE");
    cmd->add_flag("--list", o->list, "List shapes, mixes and formats");
    cmd->add_flag("--dry-run", o->dry_run, "Print formats and sizes, write nothing");
    cmd->callback([o] { synth(*o); });
}

}  // namespace ridge
