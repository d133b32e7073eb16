#include "cli/flags.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <random>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge {

CLI::Validator positive_number() {
    return CLI::Validator(
        [](std::string &text) {
            uint32_t n = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
            const bool ok = error == std::errc{} && end == text.data() + text.size() && n > 0;
            return ok ? std::string()
                      : fmt::format("'{}' is no whole number from 1 to {}", gguf::printable(text), UINT32_MAX);
        },
        "");
}

DeviceChoice DeviceFlags::choice() const {
    DeviceChoice c{.names = names, .place = place, .experts = experts};
    c.options.driver = driver;
    return c;
}

std::string DeviceFlags::text() const {
    std::string t;
    for (const std::string &n : names) t += (t.empty() ? " --device " : ",") + n;
    if (!place.empty()) t += " --place " + place;
    if (!experts.empty()) t += " --experts " + experts;
    return t;
}

void add_device_flags(CLI::App &cmd, DeviceFlags &f, const std::string &group, bool experts) {
    cmd.add_option("--device", f.names,
                   "Devices that may be used: cpu, cuda:0, hip:1; cuda is all of its GPUs (default: the GPUs, and the "
                   "CPU for what does not fit them)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAME")
        ->group(group);
    cmd.add_option("--place", f.place,
                   "Layers by device: 0:20,1:20,cpu:8 puts 20 on GPU 0, 20 on GPU 1 and 8 on the CPU, which gets those "
                   "not named too (default: what fits, printed in this form)")
        ->type_name("MAP")
        ->group(group);
    if (experts)
        cmd.add_option("--experts", f.experts,
                       "cpu: experts lie on the CPU, the rest of their layers where --place says; cpu:12: those of the "
                       "last 12 layers")
            ->type_name("cpu[:N]")
            ->group(group);
    cmd.add_option("--driver", f.driver, "Library to open in place of the GPU's driver")->group("");
}

std::shared_ptr<ModelFlags> add_model_flags(CLI::App &cmd) {
    auto f = std::make_shared<ModelFlags>();
    cmd.add_option("-m,--model,model", f->model, "GGUF file; of a split set, any part")->required()->type_name("FILE");
    cmd.add_option("-t,--threads", f->open.threads, "CPU threads (default: what affinity and cgroup grant)")
        ->check(positive_number());
    add_device_flags(cmd, f->device);
    cmd.add_option("-c,--context", f->session.context, "Positions of context (default: the model's, at most 8192)")
        ->check(positive_number());
    cmd.add_option("-b,--batch", f->session.batch, "Most tokens in one step")
        ->check(positive_number())
        ->capture_default_str();
    cmd.add_option("--kv", f->kv, "Type of the KV state; q8_0 takes 53% of the memory of f16")
        ->check(CLI::IsMember({"f16", "f32", "q8_0"}))
        ->capture_default_str();
    cmd.add_option("--lever", f->levers,
                   "Switch levers: -NAME off, +NAME on, none, all, default; see `ridge levers`. May be given again")
        ->allow_extra_args(false)
        ->type_name("LIST");
    add_tokenizer_flags(cmd, f->open.pre_tokenizer, f->open.tokenizer_family);
    return f;
}

void add_tokenizer_flags(CLI::App &cmd, std::string &pre_tokenizer, std::string &family, CLI::Option *needs) {
    CLI::Option *pre = cmd.add_option("--pre", pre_tokenizer, "Pre-tokenizer, where the file names none or a wrong one")
                           ->type_name("NAME");
    CLI::Option *tokenizer =
        cmd.add_option("--tokenizer", family, "Tokenizer family, where the file names none or a wrong one")
            ->type_name("FAMILY");
    if (needs == nullptr) return;
    pre->needs(needs);
    tokenizer->needs(needs);
}

DType kv_type_of(const std::string &text) {
    return text == "f32" ? DType::f32 : text == "q8_0" ? DType::q8_0 : DType::f16;
}

void ModelFlags::resolve() {
    open.kv_type = kv_type_of(kv);
    session.levers = LeverSet::from_environment();
    for (const std::string &l : levers) session.levers = session.levers.edited(l, "--lever");
    open.devices = device.choice();
    open.sessions_like = session;
}

std::shared_ptr<SamplerFlags> add_sampler_flags(CLI::App &cmd) {
    auto f = std::make_shared<SamplerFlags>();
    SamplerOptions &o = f->options;
    const std::string group = "Sampling";
    auto add = [&](const char *flag, auto &value, const char *text) {
        return cmd.add_option(flag, value, text)->group(group)->capture_default_str();
    };
    add("--temp", o.temperature, "Temperature; 0 takes the most likely token");
    add("--top-k", o.top_k, "Keep the k most likely tokens; 0: all");
    add("--top-p", o.top_p, "Keep the most likely tokens up to this mass");
    add("--min-p", o.min_p, "Drop tokens less likely than this share of the most likely");
    add("--typical", o.typical_p, "Keep locally typical tokens up to this mass");
    add("--repeat-penalty", o.repetition_penalty, "Divide the logits of tokens seen before");
    add("--presence-penalty", o.presence_penalty, "Subtract from the logits of tokens seen before");
    add("--frequency-penalty", o.frequency_penalty, "Subtract from them once per occurrence");
    add("--penalty-window", o.penalty_window, "How many of the last tokens count as seen; 0: all");
    cmd.add_option("--logit-bias", f->logit_bias, "Add BIAS to the logit of token ID; -inf bans it. May be given again")
        ->group(group)
        ->type_name("ID=BIAS")
        ->allow_extra_args(false);
    CLI::Option *seed =
        cmd.add_option("--seed", o.seed, "Seed; the same seed gives the same text (default: random)")->group(group);
    seed->each([flags = f.get()](const std::string &) { flags->seed_given = true; });
    return f;
}

void SamplerFlags::resolve() {
    for (const std::string &text : logit_bias) {
        const size_t eq = text.find('=');
        int32_t id = -1;
        float bias = 0;
        const char *end = text.data() + text.size();
        bool ok = eq != std::string::npos &&
                  std::from_chars(text.data(), text.data() + eq, id).ptr == text.data() + eq && id >= 0;
        if (ok) {
            const auto [ptr, error] = std::from_chars(text.data() + eq + 1, end, bias);
            ok = error == std::errc{} && ptr == end;
        }
        if (!ok) {
            fail(ErrorKind::usage, "--logit-bias {}: must be ID=BIAS, as in 42=-1.5 or 42=-inf", gguf::printable(text));
        }
        options.logit_bias[id] = bias;
    }
    if (!seed_given) options.seed = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
    validate(options);
}

}  // namespace ridge
