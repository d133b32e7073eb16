// ridge ladder: what the precision of attention's weights does to a text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/bench_output.h"
#include "cli/flags.h"
#include "cli/load.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "gguf/printable.h"
#include "measure/ladder.h"

namespace ridge {
namespace {

struct Options {
    std::shared_ptr<ModelFlags> model;
    LadderOptions ladder;
    std::vector<uint64_t> seeds{1, 2};
    float temperature = 0.7F;
    bool json = false, texts = false;
};

std::string sampler_name(const SamplerOptions &s) {
    return s.temperature > 0 ? fmt::format("seed {}", s.seed) : std::string("greedy");
}

// "64", "17 repeats 2 tokens over the last 40".
std::string text_note(const LadderText &t) {
    const std::string why = to_string(t.repetition);
    return fmt::format("{}{}{}", t.agrees, why.empty() ? "" : t.repetition.collapsed() ? " COLLAPSED: " : " ", why);
}

OrderedJson as_json(const LadderResult &r, const LadderOptions &o) {
    OrderedJson texts = OrderedJson::array();
    for (size_t s = 0; s < r.texts.size(); s++) {
        const LadderText &t = r.texts[s];
        texts.push_back({{"sampler", sampler_name(o.samplers[s])},
                         {"agrees", t.agrees},
                         {"collapsed", t.repetition.collapsed()},
                         {"repetition", to_string(t.repetition)},
                         {"fresh", t.repetition.fresh},
                         {"tokens", t.tokens},
                         {"text", gguf::printable(t.text, t.text.size())}});
    }
    return {{"rung", r.rung},
            {"prompt", gguf::printable(o.prompts[r.prompt], o.prompts[r.prompt].size())},
            {"prompt_tokens", r.prompt_tokens},
            {"kl", r.kl},
            {"largest_difference", r.most},
            {"texts", std::move(texts)}};
}

void print(const LadderResult &r, const Options &o) {
    const std::string prompt = printable(o.ladder.prompts[r.prompt]);
    std::string line = fmt::format("{:<12} {:<32} {:>10.2e} {:>10.2e}", r.rung, prompt.substr(0, 32), r.kl, r.most);
    for (size_t s = 0; s < r.texts.size(); s++)
        line += fmt::format("  {}: {}", sampler_name(o.ladder.samplers[s]), text_note(r.texts[s]));
    line += "\n";
    for (const LadderText &t : r.texts)
        if (o.texts) line += fmt::format("    | {}\n", gguf::printable(t.text, t.text.size()));
    write_out(line);
}

// What the rungs come to: the largest KL of each, and how many of its texts collapsed.
void print_summary(const std::vector<LadderResult> &all) {
    write_out(fmt::format("\n{:<12} {:>10} {:>16} {:>10}\n", "rung", "most KL", "collapsed", "agrees to"));
    for (const Rung &rung : ladder_rungs()) {
        double kl = 0;
        size_t texts = 0, collapsed = 0;
        uint32_t agrees = UINT32_MAX;
        for (const LadderResult &r : all) {
            if (r.rung != rung.name) continue;
            kl = std::max(kl, r.kl);
            for (const LadderText &t : r.texts)
                texts++, collapsed += t.repetition.collapsed(), agrees = std::min(agrees, t.agrees);
        }
        write_out(fmt::format("{:<12} {:>10.2e} {:>16} {:>10}\n", rung.name, kl,
                              fmt::format("{} of {}", collapsed, texts), agrees));
    }
}

void run(Options &o) {
    o.model->resolve();
    if (o.ladder.prompts.empty())
        o.ladder.prompts = {"The capital of France is", "Once upon a time there was", "needle needle haystack needle",
                            "1) red 2) green 3)"};
    o.ladder.levers = o.model->session.levers;
    o.ladder.samplers.push_back({.temperature = 0});
    for (const uint64_t seed : o.seeds) o.ladder.samplers.push_back({.temperature = o.temperature, .seed = seed});
    for (const SamplerOptions &s : o.ladder.samplers) validate(s);
    const auto model = Model::open(o.model->model, o.model->open);
    note_placement(*model);
    std::vector<LadderResult> all;
    if (!o.json)
        write_out(fmt::format(
            "{}, {}: the first token's KL and largest difference of logits, and how many of {} tokens "
            "agree, with rung f32\n{:<12} {:<32} {:>10} {:>10}  texts\n",
            printable(o.model->model), model->device_text(), o.ladder.tokens, "rung", "prompt", "KL", "most"));
    climb(*model, o.ladder, [&](const LadderResult &r) {
        if (!o.json) print(r, o);
        all.push_back(r);
    });
    if (!o.json) return print_summary(all);
    OrderedJson results = OrderedJson::array();
    for (const LadderResult &r : all) results.push_back(as_json(r, o.ladder));
    const OrderedJson doc = {{"device", model->device_text()}, {"tokens", o.ladder.tokens}, {"results", results}};
    write_out(doc.dump(2) + "\n");
}

}  // namespace

void add_ladder(CLI::App &app) {
    auto o = std::make_shared<Options>();
    CLI::App *cmd = app.add_subcommand(
        "ladder", "Continue prompts with attention's weights in f32, split, f16 and bf16: what it does to the text");
    o->model = add_model_flags(*cmd);
    cmd->add_option("-p,--prompt", o->ladder.prompts, "A prompt; may be given again (default: four short ones)")
        ->allow_extra_args(false)
        ->type_name("TEXT");
    cmd->add_option("-n,--tokens", o->ladder.tokens, "Tokens of a continuation")
        ->check(positive_number())
        ->capture_default_str();
    cmd->add_option("--seed", o->seeds, "Seeds of the continuations beside the greedy one")
        ->delimiter(',')
        ->capture_default_str();
    cmd->add_option("--temp", o->temperature, "Temperature of those")->capture_default_str();
    cmd->add_flag("--texts", o->texts, "Print the continuations");
    cmd->add_flag("--json", o->json, "Print as JSON, with all tokens");
    cmd->callback([o] { run(*o); });
}

}  // namespace ridge
