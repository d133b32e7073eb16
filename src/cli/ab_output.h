// What `ridge ab` prints: paragraphs and a table for people, JSON and CSV for programs.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_output.h"
#include "measure/ab.h"

namespace ridge {

// Of everything compared in a run.
struct AbHeader {
    std::string machine;  // the processor's name: results of one machine are those with one name
    std::string device;   // with threads and features
    std::string date;     // "2026-11-30"
    std::string command;  // what would do it again, with the model's file name
    std::string model;    // file name without folder
    std::string architecture;
    uint64_t model_bytes = 0;
    unsigned threads = 0;
    std::string busy;  // what disturbed when it began; empty: nothing
};

struct NotApplicable {
    std::string lever, why;
};

OrderedJson as_json(const bench::AbResult &r);
// The document that `-o` writes and `ridge levers --catalog` reads.
OrderedJson as_json(const AbHeader &h, const std::vector<bench::AbResult> &results,
                    const std::vector<NotApplicable> &others);

// "+3.1%" of a factor of 1.031.
std::string percent(double factor);
std::string verdict_text(const bench::AbResult &r);

class AbTable {
  public:
    AbTable(BenchForm form, AbHeader header);
    void predicted(const bench::AbResult &r);
    void measured(bench::AbResult r);
    void not_applicable(std::string lever, std::string why);
    void finish();
    OrderedJson json() const { return as_json(header_, results_, others_); }

  private:
    BenchForm form_;
    AbHeader header_;
    std::vector<bench::AbResult> results_;
    std::vector<NotApplicable> others_;
};

}  // namespace ridge
