#include "measure/quiet.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace ridge {
namespace {

double ticks_per_second() {
#if defined(_SC_CLK_TCK)
    if (const long n = sysconf(_SC_CLK_TCK); n > 0) return static_cast<double>(n);
#endif
    return 100;
}

// cpu  user nice system idle iowait irq softirq steal guest guest_nice
// Guests are counted in user and nice already.
void read_stat(const std::string &root, Load &load) {
    std::ifstream in(root + "/proc/stat");
    unsigned processors = 0;
    for (std::string line; std::getline(in, line) && line.starts_with("cpu");) {
        if (line[3] != ' ') {
            processors++;
            continue;
        }
        std::istringstream fields(line.substr(4));
        double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
        fields >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal;
        load.busy = (user + nice + system + irq + soft) / ticks_per_second();
        load.stolen = steal / ticks_per_second();
    }
    load.processors = std::max(1u, processors);
}

// throttled_usec (v2) or throttled_time (v1, nanoseconds) of the innermost group that has a quota to speak of.
double read_throttled(const std::string &root) {
    std::ifstream groups(root + "/proc/self/cgroup");
    double most = 0;
    for (std::string line; std::getline(groups, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
        const bool v2 = controllers.empty();
        if (!v2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
        const std::string mounts = root + "/sys/fs/cgroup";
        for (const std::string &mount : {mounts + (v2 ? "" : "/cpu"), mounts + (v2 ? "/unified" : "/" + controllers)}) {
            std::ifstream stat(mount + path + "/cpu.stat");
            std::string key;
            for (double value = 0; stat >> key >> value;) {
                if (key == "throttled_usec") most = std::max(most, value * 1e-6);
                if (key == "throttled_time") most = std::max(most, value * 1e-9);
            }
        }
    }
    return most;
}

double own_seconds() {
#if defined(__unix__) || defined(__APPLE__)
    rusage u{};
    if (getrusage(RUSAGE_SELF, &u) == 0) {
        const auto seconds = [](const timeval &t) {
            return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
        };
        return seconds(u.ru_utime) + seconds(u.ru_stime);
    }
#endif
    return 0;
}

}  // namespace

double read_clock(const std::string &root) {
    double most = 0;
    std::error_code error;
    for (const auto &policy : std::filesystem::directory_iterator(root + "/sys/devices/system/cpu/cpufreq", error)) {
        double khz = 0;
        if (std::ifstream(policy.path() / "scaling_cur_freq") >> khz) most = std::max(most, khz * 1e3);
    }
    if (most > 0) return most;
    std::ifstream in(root + "/proc/cpuinfo");
    for (std::string line; std::getline(in, line);) {
        const size_t colon = line.find(':');
        if (!line.starts_with("cpu MHz") || colon == std::string::npos) continue;
        double mhz = 0;
        if (std::istringstream(line.substr(colon + 1)) >> mhz) most = std::max(most, mhz * 1e6);
    }
    return most;
}

Load read_load(const std::string &root) {
    Load load;
    load.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    read_stat(root, load);
    load.own = own_seconds();
    load.throttled = read_throttled(root);
    std::ifstream(root + "/proc/loadavg") >> load.load_average;
    load.clock = read_clock(root);
    return load;
}

Contention between(const Load &before, const Load &after) {
    Contention c;
    c.seconds = after.wall - before.wall;
    c.load_average = after.load_average;
    c.clock_before = before.clock, c.clock_after = after.clock;
    // A tick at either end of the span may fall on either side of it.
    const double span = std::max(c.seconds, 1e-3), tick = 1 / ticks_per_second();
    c.allowed = std::max(0.1, 0.01 * after.processors) + 2 * tick / span;
    c.others = std::max(0.0, (after.busy - before.busy - (after.own - before.own)) / span);
    c.stolen = std::max(0.0, (after.stolen - before.stolen) / span);
    c.throttled = std::max(0.0, (after.throttled - before.throttled) / span);
    return c;
}

std::string Contention::reason() const {
    if (throttled > 0.01)
        return fmt::format("the cgroup's processor quota held this process back for {:.0f}% of the time",
                           100 * throttled);
    if (stolen > allowed) return fmt::format("the hypervisor gave {:.2f} processors to other guests", stolen);
    if (others > allowed)
        return fmt::format("other processes used {:.2f} processors (load average {:.1f})", others, load_average);
    return {};
}

Contention QuietWatch::lap() {
    const Load now = read_load(root_);
    const Contention c = between(start_, now);
    start_ = now;
    return c;
}

Contention observe(double seconds) {
    QuietWatch watch;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return watch.lap();
}

}  // namespace ridge
