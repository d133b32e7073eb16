// Flags that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model.h"
#include "runtime/sampler.h"

namespace ridge {

// --device, --place, --experts, --driver: where a model runs.
struct DeviceFlags {
    std::vector<std::string> names;
    std::string place, experts, driver;
    DeviceChoice choice() const;
    // The flags that were given: " --device cuda:0 --place 0:20".
    std::string text() const;
};
// `experts`: whether --experts is among them.
void add_device_flags(CLI::App &cmd, DeviceFlags &f, const std::string &group = "Devices", bool experts = true);
// -m, -t, --device and others, --context, --batch, --kv, --lever, --pre, --tokenizer.
struct ModelFlags {
    std::string model;
    std::string kv = "f16";
    std::vector<std::string> levers;
    DeviceFlags device;
    OpenOptions open;
    SessionOptions session;
    // Call after parsing: turns the texts into options. Throws Error{usage}.
    void resolve();
};
std::shared_ptr<ModelFlags> add_model_flags(CLI::App &cmd);

// --temp, --top-k, ..., --seed. Call `resolve` after parsing.
struct SamplerFlags {
    SamplerOptions options;
    std::vector<std::string> logit_bias;  // "ID=BIAS"
    bool seed_given = false;
    void resolve();
};
std::shared_ptr<SamplerFlags> add_sampler_flags(CLI::App &cmd);

// --pre and --tokenizer: what overrides the file, as vocabulary_from_gguf takes it.
void add_tokenizer_flags(CLI::App &cmd, std::string &pre_tokenizer, std::string &family, CLI::Option *needs = nullptr);

// What --kv names: f16, f32 or q8_0. Precondition: one of them.
DType kv_type_of(const std::string &text);

// A whole number that fits 32 bits and is not 0.
CLI::Validator positive_number();

// Every subcommand: each adds itself to `app`.
void add_run(CLI::App &app);
void add_inspect(CLI::App &app);
void add_template(CLI::App &app);
void add_tokenize(CLI::App &app);
void add_levers(CLI::App &app);
void add_devices(CLI::App &app);
void add_gate(CLI::App &app);
void add_bench(CLI::App &app);
void add_ab(CLI::App &app);
void add_ladder(CLI::App &app);
void add_explain(CLI::App &app);
void add_report(CLI::App &app);
void add_synth(CLI::App &app);

}  // namespace ridge
