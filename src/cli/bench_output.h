// What `ridge bench` prints: tables for people, JSON, JSON lines and CSV for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "backend/device_ceilings.h"
#include "measure/bench.h"

namespace ridge {

using OrderedJson = nlohmann::ordered_json;

enum class BenchForm : uint8_t { table, json, jsonl, csv };

// Of everything measured in a run.
struct BenchHeader {
    std::string device, clock, busy;  // busy: what disturbed when it began; empty: nothing
    CeilingFigures ceilings;
    unsigned threads = 1;     // that they were measured with, of the CPU
    double clock_before = 0;  // of the fastest processor when it began, Hz; 0: not known
};

std::string ceilings_text(const BenchHeader &h);
// Fields of a flat object, or their names, as a line of CSV; texts are quoted.
std::string csv_line(const OrderedJson &row, bool names);
OrderedJson as_json(const BenchHeader &h);

// Rows as they come in the table, in CSV and in JSON lines, each of which has the header's fields too, so that a line
// can be understood alone; in JSON all at the end.
class KernelTable {
  public:
    KernelTable(BenchForm form, BenchHeader header, const bench::KernelOptions &options, bench::Roof roof);
    void add(bench::KernelResult r);
    void finish();

  private:
    BenchForm form_;
    BenchHeader header_;
    bench::Roof roof_;
    OrderedJson out_;
    double clock_ = 0;  // when the last row was measured
};

class ModelTable {
  public:
    ModelTable(BenchForm form, BenchHeader header, bench::Roof roof);
    void begin_model(const Model &model, const std::string &path, double load_seconds);
    void add(bench::ModelResult r);
    void finish();

  private:
    BenchForm form_;
    BenchHeader header_;
    bench::Roof roof_;
    OrderedJson out_, model_;
    double clock_ = 0;
};

}  // namespace ridge
