#include "measure/lever_catalog.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"

namespace ridge::bench {

std::vector<LeverResult> read_results(std::string_view json, std::string_view where) {
    std::vector<LeverResult> list;
    try {
        const nlohmann::json doc = nlohmann::json::parse(json);
        for (const nlohmann::json &row : doc.at("results")) {
            LeverResult r;
            r.machine = doc.at("machine"), r.device = doc.at("device"), r.date = doc.at("date");
            r.command = doc.at("command"), r.model = doc.at("model"), r.architecture = doc.at("architecture");
            r.lever = row.at("lever"), r.levers_off = row.at("levers_off"), r.levers_on = row.at("levers_on");
            r.test = row.at("test"), r.phase = row.at("phase");
            r.verdict = row.at("verdict"), r.contended = row.at("contended");
            const nlohmann::json &p = row.at("predicted"), &m = row.at("measured");
            r.is_predicted = p.at("known") && p.at("speedup").is_number();
            if (r.is_predicted) r.predicted = p.at("speedup"), r.at_most = p.at("at_most");
            r.speedup = m.at("speedup"), r.low = m.at("low"), r.high = m.at("high");
            r.noise = row.at("noise_floor");
            list.push_back(std::move(r));
        }
    } catch (const nlohmann::json::exception &e) {
        fail(ErrorKind::file, "{}: not a result of `ridge ab -o`: {}", where, e.what());
    }
    return list;
}

std::vector<LeverResult> read_results_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    if (!in || text.empty()) fail(ErrorKind::file, "{}: cannot be read", path);
    return read_results(text, path);
}

std::vector<const LeverResult *> Catalog::of(std::string_view lever) const {
    std::vector<const LeverResult *> list;
    for (const LeverResult &r : results)
        if (r.lever == lever) list.push_back(&r);
    return list;
}

Catalog make_catalog(std::vector<LeverResult> results) {
    Catalog c;
    std::erase_if(results, [](const LeverResult &r) { return !r.contended.empty(); });
    c.results = std::move(results);
    for (const LeverInfo &l : all_levers()) {
        const std::vector<const LeverResult *> of = c.of(l.name);
        const bool helps =
            std::any_of(of.begin(), of.end(), [](const LeverResult *r) { return r->verdict == "helps"; });
        (l.on_by_default || helps ? c.kept : of.empty() ? c.unmeasured : c.dead_ends).push_back(l);
    }
    return c;
}

std::vector<RegimeFlip> regime_flips(const Catalog &c) {
    std::map<std::pair<std::string, std::string>, RegimeFlip> best;  // by lever and what differs
    const auto gap = [](const RegimeFlip &f) { return f.helps->speedup / f.not_so->speedup; };
    for (const LeverResult &x : c.results)
        for (const LeverResult &y : c.results) {
            if (x.lever != y.lever || x.verdict != "helps" || y.verdict == "helps") continue;
            std::string differs;
            int n = 0;
            const auto compare = [&](bool same, const char *what) {
                if (!same) n++, differs = what;
            };
            compare(x.phase == y.phase, "phase");
            compare(x.machine == y.machine, "machine");
            if (x.machine == y.machine) compare(x.device == y.device, "device");
            compare(x.model == y.model, "model");
            if (n != 1) continue;
            const RegimeFlip flip{&x, &y, differs};
            const auto [it, is_new] = best.try_emplace({x.lever, differs}, flip);
            if (!is_new && gap(flip) > gap(it->second)) it->second = flip;
        }
    std::vector<RegimeFlip> list;
    for (const auto &[key, flip] : best) list.push_back(flip);
    return list;
}

}  // namespace ridge::bench
