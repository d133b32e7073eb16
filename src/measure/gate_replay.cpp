#include "measure/gate_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/engine.h"
#include "engine/fuse.h"
#include "gguf/gguf.h"
#include "measure/temporary_model.h"
#include "model/model.h"
#include "runtime/sampler.h"

namespace ridge {
namespace {

constexpr uint32_t kPrompt = 24, kMostTokens = 8, kContext = 320;

class Replay {
  public:
    Replay(Backend &backend, const Program &plain, GateRow &row)
        : row_(row),
          limits_{.tokens = kPrompt, .outputs = kMostTokens, .sequences = 1, .pages = kContext / kPageTokens},
          eager_(engine(backend, plain, LeverSet::defaults().without(Lever::graphs))),
          graph_(engine(backend, plain, LeverSet::defaults().with(Lever::graphs))) {}

    void run(uint64_t seed, uint32_t tokens) {
        const uint32_t vocab = eager_->program().value(eager_->program().logits).cols;
        uint32_t position = 0;
        for (uint32_t i = 0; position < tokens; i++) {
            // A prompt, steps of 8, 7, .. 2 tokens, then one by one.
            const uint32_t wanted = i == 0 ? kPrompt : i < kMostTokens ? kMostTokens + 1 - i : 1;
            const uint32_t m = std::min(wanted, tokens - position);
            row_.cases++;
            StepBuffer step(limits_);
            step.begin();
            for (uint32_t p = 0; p < limits_.pages; p++) step.set_page(0, p, limits_.pages - 1 - p);
            for (uint32_t t = 0; t < m; t++)
                step.add(static_cast<int32_t>(uniform(seed, position + t) * vocab), position + t, 0,
                         t + kMostTokens >= m);
            eager_->run(step);
            graph_->run(step);
            compare(step, position);
            position += m;
        }
        for (StateId s = 0; s < static_cast<StateId>(eager_->program().states.size()); s++)
            check(eager_->read_state(s), graph_->read_state(s), eager_->program().state(s).name, position);
    }

  private:
    std::unique_ptr<Engine> engine(Backend &backend, const Program &plain, LeverSet levers) {
        const LeverSet can = backend.fusions();
        EngineOptions o;
        o.limits = limits_, o.pages = limits_.pages, o.keep_values = true;
        return std::make_unique<Engine>(fuse(plain, levers, {&can, 1}), std::vector<Backend *>{&backend}, weights_, o);
    }

    void compare(const StepBuffer &step, uint32_t position) {
        const Program &p = eager_->program();
        for (const Node &n : p.nodes) visit_operands(n.op, Outputs{*this, step.view(), position});
    }
    struct Outputs {
        Replay &replay;
        StepView step;
        uint32_t position;
        void in(ValueId) {}
        void weight(WeightId) {}
        void state(StateId) {}
        void out(ValueId v) {
            const Value &value = replay.eager_->program().value(v);
            const size_t rows = rows_of(value, step.tokens(), step.outputs());
            replay.check(replay.eager_->read_value(v, rows), replay.graph_->read_value(v, rows), value.name, position);
        }
    };
    void check(const std::vector<std::byte> &want, const std::vector<std::byte> &got, const std::string &name,
               uint32_t position) {
        row_.result.checked += want.size();
        for (size_t i = 0; i < want.size(); i++) {
            if (want[i] == got[i]) continue;
            if (row_.result.nbad++ == 0)
                row_.result.first_bad =
                    fmt::format("{} at position {}: byte {} differs between replay and eager\n", name, position, i);
        }
    }

    GateRow &row_;
    StepLimits limits_;
    WeightStore weights_;
    std::unique_ptr<Engine> eager_, graph_;
};

}  // namespace

GateReport gate_replay(Backend &backend, const GateOptions &options) {
    GateReport report;
    if (!backend.captures()) return report;
    for (const std::string_view like : {"tiny-qwen3", "tiny-qwen3moe"}) {
        GateRow row;
        row.name = fmt::format("replay.{}.Q4_K_M", like);
        if (row.name.find(options.row) == std::string::npos) continue;
        const TemporaryModel file(like, "Q4_K_M", false, 1);
        const gguf::File f = gguf::File::open(file.path());
        const uint32_t tokens = options.quick ? 64 : 256 + kPrompt;
        Replay(backend, build_program(f), row).run(1, tokens);
        row.note = fmt::format("{} tokens", tokens);
        report.rows.push_back(std::move(row));
    }
    return report;
}

}  // namespace ridge
