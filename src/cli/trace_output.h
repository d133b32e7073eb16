// --trace FILE: the file, and the table on stderr.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "measure/trace_file.h"

namespace ridge {

// The trace of a session: what `ridge run` does with it.
class SessionTrace {
  public:
    // Creates the file, so that a path that cannot be written is refused before a model is opened.
    explicit SessionTrace(const std::string &path) : file_(path) {}
    std::function<void(const StepTrace &)> sink() {
        return [this](const StepTrace &t) { keeper_.add(t); };
    }
    // Writes the file and, unless `quiet`, the table.
    void finish(std::string_view title, const Engine &engine, bool quiet);

  private:
    TraceFile file_;
    TraceKeeper keeper_;
};

// "cpu: AMD EPYC, 2 cores, AVX-512 VNNI" of each device.
std::vector<std::string> device_names(const Engine &engine);

// Both tables, and where the rest of the steps went.
std::string trace_tables(const Program &p, const TraceKeeper &kept);

}  // namespace ridge
