// Whether the machine is quiet enough to be measured: what other processes, the hypervisor and the cgroup's quota take
// away, before and during a measurement.
//
// Busy time of others is the processors' busy time less this process's own. Files are read below `root`, so that tests
// can show another machine; one that is missing says nothing.
#pragma once

#include <cstdint>
#include <string>

namespace ridge {

// What others did to the machine during a measurement is checked; a contended measurement is tried again and then
// refused, or, with `mark` (--force), marked.
enum class WhenBusy : uint8_t { refuse, mark };

// Counters since some start, in seconds.
struct Load {
    double wall = 0;
    double busy = 0;          // of all processors and all processes
    double stolen = 0;        // by other guests of the hypervisor
    double own = 0;           // of this process
    double throttled = 0;     // for which the cgroup's quota held this process back
    unsigned processors = 1;  // online
    double load_average = 0;  // of the last minute
    double clock = 0;         // of the fastest processor at this moment, Hz; 0: the system does not say
};
Load read_load(const std::string &root = "");
// From cpufreq, or where that is absent from /proc/cpuinfo (a virtual machine has a constant there).
double read_clock(const std::string &root = "");

// What happened between two readings.
struct Contention {
    double others = 0;     // processors' worth of work that was not ours
    double stolen = 0;     // processors' worth that the hypervisor gave to others
    double throttled = 0;  // share of the time
    double load_average = 0;
    double seconds = 0;
    // Of the fastest processor, Hz, at the beginning and, the work just done, at the end; 0: the system does not say.
    // That is reported and decides nothing: a clock rises with the first work and falls with the number of busy cores.
    double clock_before = 0, clock_after = 0;

    bool quiet() const { return reason().empty(); }
    // What disturbed, in words: "other processes use 1.3 processors"; empty where nothing did. Up to a tenth of a
    // processor (more where many are online) belongs to any machine.
    std::string reason() const;
    double allowed = 0.1;  // processors' worth for others and the hypervisor
};
Contention between(const Load &before, const Load &after);

// Watches a span of time.
class QuietWatch {
  public:
    explicit QuietWatch(std::string root = "") : root_(std::move(root)), start_(read_load(root_)) {}
    // Since the start or the last call of `lap`.
    Contention lap();

  private:
    std::string root_;
    Load start_;
};

// Sleeps for `seconds` and says what others did meanwhile.
Contention observe(double seconds);

}  // namespace ridge
