#include "cli/explain_output.h"

#include <fmt/format.h>

#include "cli/ceilings_output.h"

namespace ridge {
namespace {

constexpr size_t kColumns = 100;

double percent(double share) { return 100 * share; }

std::string_view meaning(Regime r) {
    switch (r) {
        case Regime::bandwidth:
            return "the time goes into reading weights and state from memory";
        case Regime::compute:
            return "the time goes into multiply-adds";
        case Regime::host:
            return "the time goes by between launches: starting them, waiting for the last worker";
        case Regime::busy:
            break;
    }
    return "launches fill the time, but neither memory nor multiply-adds bind them: it is their number and "
           "what else they do";
}

std::string_view short_name(Regime r) {
    switch (r) {
        case Regime::bandwidth:
            return "memory";
        case Regime::compute:
            return "arithmetic";
        case Regime::host:
            return "host";
        case Regime::busy:
            break;
    }
    return "neither";
}

std::string times_as_fast(double x) { return x >= 1000 ? "-" : fmt::format("{:.2f}x", x); }

// At most `room` bytes of a name, which is ASCII.
std::string cut(const std::string &name, size_t room) {
    return name.size() <= room ? name : name.substr(0, room - 2) + "..";
}

std::string evidence(const Phase &p, const DeviceCeilings &c) {
    const RegimeVerdict &v = p.verdict;
    const auto share = [&](Regime r) { return percent(v.time[static_cast<size_t>(r)]); };
    double bytes = 0, multiply_adds = 0;
    for (const LaunchClass &k : p.times.classes) bytes += k.bytes, multiply_adds += k.multiply_adds();
    std::string text = wrapped(
        "  ", fmt::format("time: {:.0f}% in launches bound by memory, {:.0f}% by arithmetic, "
                          "{:.0f}% by neither; {:.0f}% outside launches",
                          share(Regime::bandwidth), share(Regime::compute), share(Regime::busy), share(Regime::host)));
    text += wrapped("  ", fmt::format("memory: {:.2f} MB a step, {:.0f}% of the read ceiling ({}){}", bytes / 1e6,
                                      percent(v.read_share), figure_text(c.figures.get("read"), "B/s"),
                                      v.cached ? "; all of it fits into the caches, so memory does not bind" : ""));
    if (!v.cached && v.read_share > kBeyond)
        text += wrapped("  ", "more than the ceiling: it was measured in a slower hour; --measure takes it again");
    text += wrapped(
        "  ", fmt::format("arithmetic: {:.2f} GFLOP a step, {:.0f}% of the ceilings (int8 {}, f32 {})",
                          2 * multiply_adds / 1e9, percent(v.compute_share),
                          figure_text(c.figures.get("int8"), "MAC/s"), figure_text(c.figures.get("f32"), "MAC/s")));
    const double outside = v.outside * p.times.wall;
    text += wrapped(
        "  ",
        fmt::format("host: {} a step outside launches: {:.0f} launches, {:.0f} barriers x {} = {:.1f}% of the time; "
                    "a step without launches {} = {:.1f}%",
                    figure_text(outside, "s"), p.launches, p.times.barriers, figure_text(c.figures.get("barrier"), "s"),
                    percent(v.barrier_share), figure_text(c.figures.get("submit"), "s"), percent(v.submit_share)));
    for (const LaunchClass &k : p.times.classes)
        if (k.tile_fill > 0)
            text += wrapped("  ", fmt::format("tiles of {}: {:.0f}% of their rows hold a token, the rest is multiplied "
                                              "for nothing",
                                              k.name, percent(k.tile_fill)));
    text += wrapped("  ", fmt::format("workers: {} busy {:.0f}% of the time; tracing added an estimated {:.1f}%",
                                      p.times.workers, percent(v.busy_share), percent(p.overhead / p.traced)));
    return text;
}

std::string classes(const Phase &p) {
    std::string text = fmt::format("  {:<22} {:>4} {:>9} {:>5} {:>8} {:>8} {:>10} {:>5} {:>10} {:>8}\n", "class", "n",
                                   "us", "f", "MB", "GFLOP", "bound by", "share", "to ceiling", "gone");
    constexpr double kSmall = 0.002;  // of the time, or less: in one line together
    double rest = 0;
    size_t rest_classes = 0;
    for (size_t i = 0; i < p.times.classes.size(); i++) {
        const LaunchClass &c = p.times.classes[i];
        const ClassVerdict &v = p.verdict.classes[i];
        if (v.f < kSmall) {
            rest += v.f, rest_classes++;
            continue;
        }
        text += fmt::format("  {:<22} {:>4.0f} {:>9.1f} {:>4.0f}% {:>8.2f} {:>8.3f} {:>10} {:>4.0f}% {:>10} {:>8}\n",
                            cut(c.name, 22), c.launches, c.seconds * 1e6, percent(v.f), c.traffic / 1e6,
                            2 * c.multiply_adds() / 1e9, short_name(v.bound), percent(v.share),
                            times_as_fast(v.to_ceiling), times_as_fast(v.most));
    }
    if (rest_classes > 0)
        text += fmt::format("  {:<22} {:>4} {:>9.1f} {:>4.1f}%\n", fmt::format("{} small classes", rest_classes), "",
                            rest * p.times.wall * 1e6, percent(rest));
    const double outside = p.verdict.outside;
    return text + fmt::format("  {:<22} {:>4} {:>9.1f} {:>4.0f}% {:>8} {:>8} {:>10} {:>5} {:>10} {:>8}\n",
                              "(outside launches)", "", outside * p.times.wall * 1e6, percent(outside), "", "", "host",
                              "", "", times_as_fast(speedup(outside, 0)));
}

}  // namespace

std::string wrapped(std::string_view first, std::string_view text) {
    std::string out(first), line;
    size_t room = kColumns - first.size();
    const std::string indent(first.size(), ' ');
    while (!text.empty()) {
        const size_t blank = text.find(' ');
        const std::string_view word = text.substr(0, blank);
        if (!line.empty() && line.size() + 1 + word.size() > room) {
            out += line + "\n" + indent;
            line.clear();
        }
        line += (line.empty() ? "" : " ") + std::string(word);
        text = blank == std::string_view::npos ? std::string_view() : text.substr(blank + 1);
    }
    return out + line + "\n";
}

std::string to_string(const Phase &p, const DeviceCeilings &ceilings) {
    std::string text =
        fmt::format("{}: {:.2f} tokens/s, {:.3f} ms a step\n", p.name, p.rate.median(), p.times.wall * 1e3);
    if (!p.contended.empty()) text += wrapped("  contended: ", p.contended);
    std::string verdict = fmt::format("{}: {}", name(p.verdict.regime), meaning(p.verdict.regime));
    if (p.verdict.close) verdict += fmt::format("; {} is not far behind", name(p.verdict.second));
    text += wrapped("  ", verdict) + "\n" + evidence(p, ceilings) + "\n" + classes(p) + "\n";
    size_t number = 1;
    if (p.next.empty()) text += "  next: nothing here would give more than 2%\n";
    for (const Advice &a : p.next)
        text += wrapped(number == 1 ? fmt::format("  next: {}. ", number) : fmt::format("        {}. ", number),
                        a.what + (a.most > 0 ? fmt::format(" - up to {}", times_as_fast(a.most)) : "")),
            number++;
    return text + wrapped("  not worth it: ", not_worth(p.verdict));
}

nlohmann::ordered_json as_json(const Phase &p) {
    using Json = nlohmann::ordered_json;
    const RegimeVerdict &v = p.verdict;
    const auto regimes = [&] {
        Json j;
        for (size_t r = 0; r < kRegimes; r++) j[std::string(name(static_cast<Regime>(r)))] = v.time[r];
        return j;
    };
    Json list = Json::array(), next = Json::array();
    for (size_t i = 0; i < p.times.classes.size(); i++) {
        const LaunchClass &c = p.times.classes[i];
        const ClassVerdict &k = v.classes[i];
        list.push_back({{"class", c.name},
                        {"rows", p.rows[i]},
                        {"launches", c.launches},
                        {"seconds", c.seconds},
                        {"worker_seconds_in_tiles", c.busy},
                        {"bytes_from_memory", c.bytes},
                        {"bytes", c.traffic},
                        {"flops", 2 * c.multiply_adds()},
                        {"int8_multiply_adds", c.int8},
                        {"bf16_multiply_adds", c.bf16},
                        {"f32_multiply_adds", c.f32},
                        {"tile_fill", c.tile_fill > 0 ? Json(c.tile_fill) : Json()},
                        {"share_of_read", k.read_share},
                        {"share_of_compute", k.compute_share},
                        {"bound_by", short_name(k.bound)},
                        {"share_of_bound", k.share},
                        {"f", k.f},
                        {"most_if_gone", k.most},
                        {"most_at_ceiling", k.to_ceiling}});
    }
    for (const Advice &a : p.next) next.push_back({{"what", a.what}, {"most", a.most > 0 ? Json(a.most) : Json()}});
    return {{"phase", p.name},
            {"n_prompt", p.options.prompt},
            {"n_gen", p.options.answer},
            {"n_depth", p.options.depth},
            {"contended", p.contended},
            {"median_ts", p.rate.median()},
            {"samples_ts", p.rate.in_order()},
            {"tokens_per_step", p.step_tokens},
            {"seconds_per_step", p.times.wall},
            {"tracing_overhead_seconds", p.overhead},
            {"regime", name(v.regime)},
            {"close", v.close ? Json(name(v.second)) : Json()},
            {"time", regimes()},
            {"share_of_read", v.read_share},
            {"share_of_compute", v.compute_share},
            {"cached", v.cached},
            {"outside_launches", v.outside},
            {"launches", p.launches},
            {"barriers", p.times.barriers},
            {"share_of_barriers", v.barrier_share},
            {"share_of_submit", v.submit_share},
            {"workers", p.times.workers},
            {"share_of_workers_busy", v.busy_share},
            {"worker_seconds_at_barriers", p.times.waiting},
            {"seconds_for_logits", p.times.logits},
            {"classes", std::move(list)},
            {"next", std::move(next)},
            {"not_worth", not_worth(v)}};
}

}  // namespace ridge
