#include "measure/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge {
namespace {

struct FirstOut {
    ValueId found = kNone;
    void in(ValueId) {}
    void out(ValueId v) { found = found == kNone ? v : found; }
    void weight(WeightId) {}
    void state(StateId) {}
};

std::string duration(double seconds) {
    return seconds >= 1      ? fmt::format("{:.3f} s", seconds)
           : seconds >= 1e-3 ? fmt::format("{:.3f} ms", seconds * 1e3)
                             : fmt::format("{:.2f} us", seconds * 1e6);
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace

void StepsSum::add(const StepTrace &t, double host, double keeping) {
    s_.steps++, s_.tokens += t.count.tokens, s_.launches += t.launches.size(), s_.barriers += t.barriers;
    s_.wall += t.wall, s_.logits += t.logits, s_.host += host, s_.waiting += t.waiting;
    s_.workers = std::max(s_.workers, t.workers);
    s_.worker_seconds += t.wall * t.workers, s_.overhead += t.overhead + keeping;
    double covered = 0;  // until when some launch has run
    for (const LaunchTrace &l : t.launches) {
        s_.device += std::max(0.0, l.end - std::max(l.start, covered));
        covered = std::max(covered, l.end);
        s_.busy += l.busy;
        add(t, l);
    }
}

StepsTime StepsSum::result() const {
    StepsTime sorted = s_;
    std::stable_sort(sorted.classes.begin(), sorted.classes.end(),
                     [](const ClassTime &a, const ClassTime &b) { return a.seconds > b.seconds; });
    return sorted;
}

void StepsSum::add(const StepTrace &t, const LaunchTrace &l) {
    const Op &op = p_.nodes[l.node].op;
    if (expert_ids(op) != kNone) (l.experts > 0 ? s_.experts_counted : s_.experts_expected)++;
    const Known &known = known_of(l.node);
    ClassTime &c = s_.classes[known.at];
    if (l.kernel != nullptr) c.rows.insert(l.kernel->name);
    c.launches++;
    c.seconds += l.end - l.start, c.busy += l.busy, c.worker_seconds += (l.end - l.start) * l.workers;
    const StepCount count = t.count_of(p_, l);
    const Cost k = cost(p_, op, count);
    c.cost += k;
    c.memory += k.weight_bytes;
    c.routed_rows += l.routed_rows, c.tile_rows += l.tile_rows;
    if (const Attention *a = std::get_if<Attention>(&op)) {
        const State &keys = p_.state(a->k_state), &values = p_.state(a->v_state);
        c.memory +=
            count.kv_rows * static_cast<double>(row_bytes(keys.type, keys.cols) + row_bytes(values.type, values.cols));
    }
    const bool bf16 = l.kernel != nullptr && l.kernel->order == Order::bf16_pairs16;
    (bf16 ? c.bf16 : known.input == DType::f32 ? c.f32 : c.int8) += k.flops / 2;
}

const StepsSum::Known &StepsSum::known_of(uint32_t node) {
    if (const auto known = of_node_.find(node); known != of_node_.end()) return known->second;
    const Op &op = p_.nodes[node].op;
    const std::string name = class_name(p_, op);
    size_t at = 0;
    while (at < s_.classes.size() && s_.classes[at].name != name) at++;
    if (at == s_.classes.size())
        s_.classes.emplace_back().name = name, s_.classes.back().op = static_cast<OpKind>(op.index());
    return of_node_.emplace(node, Known{at, matrices_of(p_, op).input}).first->second;
}

void TraceKeeper::add(const StepTrace &step) {
    const TraceClock::time_point start = TraceClock::now();
    if (launches_ + step.launches.size() > kMostLaunches) {
        left_out_++;
        return;
    }
    launches_ += step.launches.size();
    steps_.push_back({step, 0});
    steps_.back().keeping = std::chrono::duration<double>(TraceClock::now() - start).count();
}

const ClassTime *StepsTime::find(std::string_view name) const {
    const auto found = std::find_if(classes.begin(), classes.end(), [&](const ClassTime &c) { return c.name == name; });
    return found == classes.end() ? nullptr : &*found;
}

TraceSummary summarize(const Program &p, const std::vector<KeptStep> &steps) {
    StepsSum prompt(p), answer(p);
    const KeptStep *before = nullptr;
    for (const KeptStep &k : steps) {
        const StepTrace &t = k.trace;
        double host = 0, keeping = 0;
        // Before a prompt the host may have waited for a person.
        if (before != nullptr && (!t.prompt || before->trace.prompt)) {
            keeping = before->keeping;
            const StepTrace &last = before->trace;
            host = std::max(0.0, last.since_began(t.began) - last.wall - last.apart - keeping);
        }
        (t.prompt ? prompt : answer).add(t, host, keeping);
        before = &k;
    }
    return {prompt.result(), answer.result()};
}

std::string class_name(const Program &p, const Op &op) {
    std::string name(op_name(static_cast<OpKind>(op.index())));
    if (const MatrixOperands m = matrices_of(p, op); !m.formats.empty()) name += " " + m.format_names;
    if (expert_ids(op) != kNone) name += " experts";
    return name;
}

std::string launch_name(const Program &p, const Node &n) {
    FirstOut first;
    visit_operands(n.op, first);
    if (first.found != kNone) return p.value(first.found).name;
    return fmt::format("{}.{}", n.layer, op_name(static_cast<OpKind>(n.op.index())));
}

std::string to_string(const StepsTime &t, std::string_view title) {
    if (t.steps == 0) return {};
    const auto steps = static_cast<double>(t.steps);
    const auto each = [&](double seconds) { return duration(seconds / steps); };
    const bool by_token = t.tokens == t.steps;
    std::string text = fmt::format("{}: {} token{} in {} step{}, {}", title, t.tokens, t.tokens == 1 ? "" : "s",
                                   t.steps, t.steps == 1 ? "" : "s", duration(t.wall));
    text += by_token ? "; per token:\n"
                     : fmt::format(", {} a token; per step:\n", duration(t.wall / static_cast<double>(t.tokens)));
    text += fmt::format("  wall {} = device {} + logits {} + gaps {} ({:.1f}%); host between steps {}\n", each(t.wall),
                        each(t.device), each(t.logits), each(t.gaps()), percent(t.gaps(), t.wall), each(t.host));
    text += fmt::format(
        "  launches {:.1f}, barriers {:.1f}; workers busy {:.1f}%, waiting {:.1f}%; tracing itself {} ({:.1f}%)\n",
        static_cast<double>(t.launches) / steps, static_cast<double>(t.barriers) / steps,
        percent(t.busy, t.worker_seconds), percent(t.waiting, t.worker_seconds), each(t.overhead),
        percent(t.overhead, t.wall + t.host));
    if (t.experts_counted + t.experts_expected > 0)
        text += t.experts_expected == 0
                    ? "  experts: those that had tokens, counted from the ids of each launch\n"
                    : fmt::format(
                          "  experts: counted from the ids in {} launches, in {} what independent uniform "
                          "routing lets expect\n",
                          t.experts_counted, t.experts_expected);
    for (const ClassTime &c : t.classes)
        if (c.tile_rows > 0)
            text += fmt::format("  {}: tiles {:.1f}% full\n", c.name,
                                percent(static_cast<double>(c.routed_rows), static_cast<double>(c.tile_rows)));
    text += fmt::format("  {:<28} {:>8} {:>12} {:>7} {:>5} {:>10} {:>8} {:>8}\n", "class", "launches", "us", "share",
                        "busy", "MB", "GB/s", "GMAC/s");
    for (const ClassTime &c : t.classes)
        text += fmt::format("  {:<28} {:>8.5g} {:>12.2f} {:>6.1f}% {:>4.0f}% {:>10.3f} {:>8.2f} {:>8.1f}\n", c.name,
                            static_cast<double>(c.launches) / steps, c.seconds / steps * 1e6,
                            percent(c.seconds, t.wall), percent(c.busy, c.worker_seconds), c.cost.bytes() / steps / 1e6,
                            c.bytes_per_second() / 1e9, c.multiply_adds_per_second() / 1e9);
    return text;
}

}  // namespace ridge
