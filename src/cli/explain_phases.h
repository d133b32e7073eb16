// What `ridge explain` measures, for those that show it in another form.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "measure/ceilings_store.h"
#include "measure/explain.h"
#include "runtime/model.h"

namespace ridge {

struct ExplainOptions {
    std::string model, kv = "f16";
    std::vector<std::string> lever_texts;
    unsigned threads = 0;
    DeviceFlags device;
    uint32_t prompt = 512, answer = 32, batch = 512;
    std::optional<uint32_t> depth;  // none: 4096, less where the model's context is short
    bool force = false, measure = false;
};
// -m, -t, --device and others, -p, -n, -d, -b, --kv, --lever, --measure, --force
void add_explain_options(CLI::App &cmd, ExplainOptions &o);

// What is there before the first phase.
struct Explained {
    std::unique_ptr<Model> model;
    LeverSet levers = LeverSet::none();
    DeviceCeilings ceilings;
};
// Measures phase by phase. `begin` is called before the first. Throws as explain_phase and Model::open, Error{usage}
// where there is nothing to explain, Error{limit} where the machine is not quiet and that is to be refused.
Explained explain(const ExplainOptions &options, const std::function<void(const Explained &)> &begin,
                  const std::function<void(const Explained &, const Phase &)> &emit);

}  // namespace ridge
