// What levers were measured to do, as `ridge ab -o FILE` writes it: the paper's two tables, kept levers and dead ends,
// out of results that carry machine, date and command.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/levers.h"

namespace ridge::bench {

struct LeverResult {
    std::string machine, device, date, command, model, architecture;
    std::string lever, levers_off, levers_on, test, phase;
    bool is_predicted = false, at_most = false;
    double predicted = 1;                   // speed-up
    double speedup = 1, low = 1, high = 1;  // measured, with its interval
    double noise = 0;                       // floor, as a share
    std::string verdict;                    // helps, flat or hurts
    std::string contended;                  // empty: quiet
};

// Results in a document; `where` names it in errors. Throws Error{file} where it is none that `ridge ab` writes.
std::vector<LeverResult> read_results(std::string_view json, std::string_view where);

std::vector<LeverResult> read_results_file(const std::string &path);

struct Catalog {
    // What is on by default, or helps somewhere.
    std::vector<LeverInfo> kept;
    // What is off by default and was measured to help nowhere.
    std::vector<LeverInfo> dead_ends;
    // Off by default and not measured.
    std::vector<LeverInfo> unmeasured;
    std::vector<LeverResult> results;

    std::vector<const LeverResult *> of(std::string_view lever) const;
};
// Contended results are no evidence and are left out.
Catalog make_catalog(std::vector<LeverResult> results);

// A lever that helps here and does not there, where only one thing differs.
struct RegimeFlip {
    const LeverResult *helps, *not_so;
    std::string differs;  // "phase", "machine", "model" or "device" (its threads)
};
// Of each lever and kind of difference the pair that lies farthest apart.
std::vector<RegimeFlip> regime_flips(const Catalog &c);

}  // namespace ridge::bench
