// The gate: every kernel row of a backend, on every format it reads and every shape that fits it, against the oracle.
//
// A problem is one operation with its operands; a case is one row on one problem with one number of tokens. An element
// of an output is bad where it leaves the bound of op/bound.h (or differs at all, where the result is exact), where it
// differs from another row of the same Order or from itself in a step of another size, or where something is written
// that should not be. Checking nothing is a failure. Only the verbs of Backend are used, so one gate serves all.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "measure/gate_result.h"

namespace ridge {

struct GateOptions {
    std::string op;                // only this operation; "format", "fusion" and "model" name the other gates
    std::optional<Format> format;  // only this format
    std::string row;               // only rows whose name contains it
    bool quick = false;            // fewer shapes and step sizes
};

// What was found about one kernel row (or decoder, or fusion rule).
struct GateRow {
    std::string name;
    FormatSet formats;  // checked
    size_t n_formats = 0, cases = 0;
    GateResult result;
    double worst = 0;     // largest error as a share of its bound, over results that are not exact
    std::string note;     // shown behind the line: "mean KL 1.2e-10"
    std::string not_run;  // "needs avx512f": the machine cannot run it; empty: it can
    bool ok() const { return !not_run.empty() || result.ok(); }
};

struct GateReport {
    std::vector<GateRow> rows;
    GateRow total() const;  // of those that ran; n_formats: distinct formats
    size_t not_run() const;
    // At least one row ran, and all that ran checked something and found nothing bad.
    bool ok() const;
    void append(GateReport other);
};

// The kernel rows of a backend, in the order of its table.
GateReport gate_rows(Backend &backend, const GateOptions &options);
// "format.Q4_K": the decoders of src/format, bit for bit.
GateReport gate_formats(const GateOptions &options);
// "fusion.gate_up": for each rule of engine/fuse.cpp, programs with and without it (and with any lever of rows) give
// the same bits.
GateReport gate_fusions(Backend &backend, const GateOptions &options);

// A row's line, with what was found first below it; and the totals. The report is one after the other.
std::string to_string(const GateRow &row);
std::string totals_of(const GateReport &report);
std::string to_string(const GateReport &report);

}  // namespace ridge
