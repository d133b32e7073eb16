#include "cli/ab_output.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/terminal.h"

namespace ridge {
namespace {

using bench::AbResult;
using bench::Estimate;
using bench::Prediction;

void print(const std::string &text) { write_out(text); }

std::string lever_name(const AbResult &r) { return r.lever == Lever::none ? "A/A" : std::string(name(r.lever)); }

// A number, or null where it is infinite: JSON has no infinity.
OrderedJson finite(double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(nullptr); }

std::string launches(size_t n) { return fmt::format("{} launch{}", n, n == 1 ? "" : "es"); }

std::string prediction_text(const Prediction &p) {
    if (!p.unknown.empty()) return "none: " + p.unknown;
    if (p.at_most)
        return fmt::format(
            "at most {}: the lever changes no launch, only what lies between them, which takes {:.1f}% of a step",
            percent(p.speedup()), 100 * p.f);
    if (p.launches_a + p.launches_b == 0) return "+0.0%: no launch differs here";
    if (p.launches_a == 0)
        return fmt::format("{}: {} more, {:.1f} us alone", percent(p.speedup()), launches(p.launches_b),
                           1e6 * p.seconds_b);
    return fmt::format(
        "{} = 1 / (1 - f (1 - 1/k)): f = {:.1f}% of the step in {}, k = {}: {:.1f} us alone, with the "
        "lever {} in {:.1f} us",
        percent(p.speedup()), 100 * p.f, launches(p.launches_a),
        std::isfinite(p.k) ? fmt::format("{:.3f}", p.k) : "infinite", 1e6 * p.seconds_a, launches(p.launches_b),
        1e6 * p.seconds_b);
}

std::string interval_text(const Estimate &e) {
    return fmt::format("{} to {}", percent(1 / e.ratio_high()), percent(1 / e.ratio_low()));
}

std::string logits_text(const bench::LogitsDifference &d) {
    if (d.same_bits == d.positions) return fmt::format("the same bits at {} positions", d.positions);
    return fmt::format("differ by at most {:.2g}, KL {:.2g}; the same most likely token at {} of {} positions", d.most,
                       d.kl, d.same_choice, d.positions);
}

std::string resolution_text(const AbResult &r) {
    if (std::log1p(r.verdict.resolution) <= std::log(1.01)) return {};
    const double s = r.verdict.seconds_for_1_percent;
    if (!std::isfinite(s))
        return "a change of 1% cannot be told here, however long it runs: two engines of the same levers differ by "
               "more";
    return fmt::format("too short to tell a change of 1% (only {:.1f}%): that takes --seconds {:.0f}",
                       100 * r.verdict.resolution, std::ceil(s));
}

}  // namespace

std::string percent(double factor) { return fmt::format("{:+.1f}%", 100 * (factor - 1)); }

std::string verdict_text(const AbResult &r) {
    using bench::Outcome;
    if (r.verdict.outcome == Outcome::flat) return "flat";
    return fmt::format("{} by {:.1f}%", name(r.verdict.outcome), std::abs(100 * (r.speedup() - 1)));
}

OrderedJson as_json(const AbResult &r) {
    const Prediction &p = r.predicted;
    OrderedJson predicted = {{"known", p.unknown.empty()},
                             {"why_not", p.unknown},
                             {"speedup", finite(p.speedup())},
                             {"at_most", p.at_most},
                             {"f", p.f},
                             {"k", finite(p.k)},
                             {"added", p.added},
                             {"launches_off", p.launches_a},
                             {"launches_on", p.launches_b},
                             {"seconds_off_alone", p.seconds_a},
                             {"seconds_on_alone", p.seconds_b}};
    const auto interval = [](const Estimate &e) {
        return OrderedJson{{"speedup", finite(1 / e.ratio())},
                           {"low", finite(1 / e.ratio_high())},
                           {"high", finite(1 / e.ratio_low())},
                           {"time_ratio", finite(e.ratio())},
                           {"rounds", e.samples}};
    };
    OrderedJson row = {{"lever", lever_name(r)},
                       {"levers_off", r.levers_a.to_string()},
                       {"levers_on", r.levers_b.to_string()},
                       {"test", r.phase.test()},
                       {"phase", r.phase.name()},
                       {"n_prompt", r.phase.prompt},
                       {"n_gen", r.phase.answer},
                       {"n_depth", r.phase.depth},
                       {"surfaces_in", r.lever == Lever::none ? "" : std::string(info(r.lever).surfaces_in)},
                       {"predicted", std::move(predicted)},
                       {"measured", interval(r.b)},
                       {"noise", interval(r.a)},
                       {"noise_floor", finite(std::expm1(r.verdict.floor))},
                       {"verdict", std::string(name(r.verdict.outcome))},
                       {"above_noise", r.verdict.above_noise},
                       {"resolution", finite(r.verdict.resolution)},
                       {"seconds_for_1_percent", finite(r.verdict.seconds_for_1_percent)},
                       {"seconds", r.took},
                       {"tokens_per_second_off", 1 / r.seconds_a},
                       {"tokens_per_second_on", 1 / r.seconds_b}};
    row["logits"] = {{"positions", r.logits.positions},
                     {"same_bits", r.logits.same_bits},
                     {"same_choice", r.logits.same_choice},
                     {"most", r.logits.most},
                     {"kl", r.logits.kl}};
    row["contended"] = r.contended;
    return row;
}

OrderedJson as_json(const AbHeader &h, const std::vector<AbResult> &results, const std::vector<NotApplicable> &others) {
    OrderedJson doc = {
        {"machine", h.machine}, {"device", h.device}, {"threads", h.threads},           {"date", h.date},
        {"command", h.command}, {"model", h.model},   {"architecture", h.architecture}, {"model_size", h.model_bytes},
        {"contended", h.busy}};
    doc["results"] = OrderedJson::array();
    for (const AbResult &r : results) doc["results"].push_back(as_json(r));
    doc["not_applicable"] = OrderedJson::array();
    for (const NotApplicable &n : others) doc["not_applicable"].push_back({{"lever", n.lever}, {"why", n.why}});
    return doc;
}

AbTable::AbTable(BenchForm form, AbHeader header) : form_(form), header_(std::move(header)) {
    if (form == BenchForm::table) print(fmt::format("{}\n{}\n", header_.device, printable(header_.model)));
}

void AbTable::predicted(const AbResult &r) {
    if (form_ != BenchForm::table) return;
    const bool same = r.lever == Lever::none;
    print(fmt::format("\n{} {}, {}\n", lever_name(r), same ? "" : "off and on", r.phase.test()));
    if (!same) print(fmt::format("  predicted  {}\n", prediction_text(r.predicted)));
}

void AbTable::measured(AbResult r) {
    if (r.contended.empty()) r.contended = header_.busy;
    if (form_ == BenchForm::csv) {
        OrderedJson row = {{"model", header_.model}};
        const OrderedJson result = as_json(r);
        for (const auto &[key, value] : result.items()) {
            if (!value.is_structured())
                row[key] = value;
            else
                for (const auto &[inner, x] : value.items()) row[key + "_" + inner] = x;
        }
        if (results_.empty()) print(csv_line(row, true));
        print(csv_line(row, false));
    }
    if (form_ == BenchForm::table) {
        print(fmt::format("  measured   {}, 95% of {}: {:.2f} t/s off, {:.2f} on; {} rounds in {:.1f} s\n",
                          percent(r.speedup()), interval_text(r.b), 1 / r.seconds_a, 1 / r.seconds_b, r.b.samples,
                          r.took));
        print(fmt::format("  noise      {:.2f}%: off against off is {}, 95% of {}\n", 100 * std::expm1(r.verdict.floor),
                          percent(1 / r.a.ratio()), interval_text(r.a)));
        print(fmt::format("  verdict    {}{}{}\n", verdict_text(r), r.verdict.above_noise ? "" : ", within the noise",
                          r.contended.empty() ? "" : "; contended: " + r.contended));
        if (const std::string text = resolution_text(r); !text.empty()) print("             " + text + "\n");
        print(fmt::format("  logits     {}\n", logits_text(r.logits)));
    }
    results_.push_back(std::move(r));
}

void AbTable::not_applicable(std::string lever, std::string why) {
    others_.push_back({std::move(lever), std::move(why)});
}

void AbTable::finish() {
    if (form_ == BenchForm::json) print(json().dump(2) + "\n");
    if (form_ != BenchForm::table) return;
    if (results_.size() > 2) {
        print(fmt::format("\n| {:<14} | {:<16} | {:>9} | {:>9} | {:>19} | {:>6} | {:<14} |\n", "lever", "test",
                          "predicted", "measured", "95%", "noise", "verdict"));
        print(
            fmt::format("|{:-<16}|{:-<18}|{:->10}:|{:->10}:|{:->20}:|{:->7}:|{:-<16}|\n", "", "", "", "", "", "", ""));
        for (const AbResult &r : results_)
            print(fmt::format(
                "| {:<14} | {:<16} | {:>9} | {:>9} | {:>19} | {:>5.2f}% | {:<14} |{}\n", lever_name(r), r.phase.test(),
                !r.predicted.unknown.empty() ? "-"
                                             : (r.predicted.at_most ? "<= " : "") + percent(r.predicted.speedup()),
                percent(r.speedup()), interval_text(r.b), 100 * std::expm1(r.verdict.floor), verdict_text(r),
                r.contended.empty() ? "" : " contended |"));
    }
    for (const NotApplicable &n : others_) print(fmt::format("not compared: {} ({})\n", n.lever, n.why));
}

}  // namespace ridge
