// Steps as a file that Perfetto (ui.perfetto.dev) and chrome://tracing show: JSON of the "trace event" form.
//
// Each section (a run, or one test of a bench) is a process: a track of its steps and the host's time between them, one
// per device with its launches, and a counter of busy workers. Times are microseconds since the section began.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "measure/trace_summary.h"

namespace ridge {

class TraceFile {
  public:
    // Creates the file. Throws Error{file} where that cannot be.
    explicit TraceFile(const std::filesystem::path &path);
    ~TraceFile();  // a file that was not finished is removed
    TraceFile(const TraceFile &) = delete;
    TraceFile &operator=(const TraceFile &) = delete;
    // Throws Error{file} where the disk is full, as finish does.
    void add(std::string_view title, const Program &p, const std::vector<std::string> &devices,
             const std::vector<KeptStep> &steps);
    void finish();

  private:
    void put(const std::string &event);
    void checked(bool fine) const;
    std::filesystem::path path_;
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> file_;
    unsigned sections_ = 0;
    bool first_ = true;
};

}  // namespace ridge
