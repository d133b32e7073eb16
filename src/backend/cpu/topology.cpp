#include "backend/cpu/topology.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

#include "backend/cpu/cpu.h"
#include "backend/cpu/rows.h"

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sys/utsname.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#if !defined(HWCAP2_I8MM)  // headers before Linux 5.6
#define HWCAP2_I8MM (1 << 13)
#endif
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace ridge {
namespace cpu {
namespace {

std::optional<std::string> read_file(const std::string &path) {
    std::ifstream in(path);
    if (!in) return std::nullopt;
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

// First number of a file; nothing where there is none ("max").
std::optional<int64_t> read_number(const std::string &path) {
    std::ifstream in(path);
    int64_t value = 0;
    if (in >> value) return value;
    return std::nullopt;
}

// Value of a line "key<separators>value ..." of a file of such lines.
std::optional<std::string> find_line(const std::string &text, std::string_view key) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(key)) continue;
        const size_t at = line.find_first_not_of(" \t:", key.size());
        if (at == key.size() || at == std::string::npos) continue;
        return line.substr(at);
    }
    return std::nullopt;
}

std::optional<uint64_t> number_in_line(const std::string &text, std::string_view key) {
    const std::optional<std::string> value = find_line(text, key);
    uint64_t number = 0;
    if (value && std::istringstream(*value) >> number) return number;
    return std::nullopt;
}

// Folders of the cgroups that bind this process for a controller, innermost first. `v2` where they are unified ones.
void visit_cgroups(const std::string &root, std::string_view controller,
                   const std::function<void(const std::string &folder, bool v2)> &visit) {
    const std::string mounts = root + "/sys/fs/cgroup";
    std::istringstream lines(read_file(root + "/proc/self/cgroup").value_or(""));
    for (std::string line; std::getline(lines, line);) {
        // hierarchy:controller,controller:path
        const size_t first = line.find(':');
        const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool v2 = controllers.empty();
        if (!v2 && ("," + controllers + ",").find("," + std::string(controller) + ",") == std::string::npos) continue;
        std::vector<std::string> mounted;
        if (v2)
            mounted = {mounts, mounts + "/unified"};
        else
            mounted = {mounts + "/" + std::string(controller), mounts + "/" + controllers};
        for (const std::string &mount : mounted)
            for (std::string path = line.substr(second + 1);;) {
                while (!path.empty() && path.back() == '/') path.pop_back();
                visit(mount + path, v2);
                if (path.empty()) break;
                path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
            }
    }
}

double read_quota(const std::string &root) {
    double quota = 0;
    const auto bound = [&](double limit, double period) {
        if (limit > 0 && period > 0) quota = quota == 0 ? limit / period : std::min(quota, limit / period);
    };
    visit_cgroups(root, "cpu", [&](const std::string &folder, bool v2) {
        if (v2) {
            std::ifstream in(folder + "/cpu.max");
            double limit = 0, period = 0;
            if (in >> limit >> period) bound(limit, period);  // "max 100000" has no number first
        } else if (const auto limit = read_number(folder + "/cpu.cfs_quota_us")) {
            bound(static_cast<double>(*limit),
                  static_cast<double>(read_number(folder + "/cpu.cfs_period_us").value_or(100000)));
        }
    });
    return quota;
}

// How fast a processor is, to compare with others of the same machine: what the kernel says of its capacity (all of
// 64-bit ARM, x86 since 6.12), else whether it is of the fast kind of a hybrid Intel machine, else its highest clock.
// 0: unknown.
class Speeds {
  public:
    explicit Speeds(const std::string &root)
        : folder_(root + "/sys/devices/system/cpu/cpu"),
          fast_(parse_cpu_list(read_file(root + "/sys/devices/cpu_core/cpus").value_or(""))) {}
    int64_t of(int processor) const {
        const std::string folder = folder_ + std::to_string(processor);
        if (const auto capacity = read_number(folder + "/cpu_capacity")) return *capacity;
        if (!fast_.empty()) return std::binary_search(fast_.begin(), fast_.end(), processor) ? 2 : 1;
        return read_number(folder + "/cpufreq/cpuinfo_max_freq").value_or(0);
    }

  private:
    std::string folder_;
    std::vector<int> fast_;
};

std::string read_model(const std::string &root) {
    const std::string text = read_file(root + "/proc/cpuinfo").value_or("");
    for (const char *key : {"model name", "Model"})
        if (const auto name = find_line(text, key)) return *name;
#if defined(__unix__) || defined(__APPLE__)
    if (utsname system; uname(&system) == 0) return system.machine;
#endif
    return "unknown processor";
}

}  // namespace

std::string system_release() {
#if defined(__unix__) || defined(__APPLE__)
    if (utsname system; uname(&system) == 0) return std::string(system.sysname) + " " + system.release;
#endif
    return {};
}

std::vector<int> parse_cpu_list(const std::string &text) {
    std::vector<int> list;
    std::istringstream in(text);
    for (int first = 0; in >> first;) {
        int last = first;
        if (in.peek() == '-') {
            in.get();
            if (!(in >> last)) break;
        }
        constexpr int kMost = 1 << 16;  // more than any kernel knows: a broken file must not eat the memory
        if (first < 0 || last < first || last >= kMost) break;
        for (int c = first; c <= last; c++) list.push_back(c);
        if (in.peek() != ',') break;
        in.get();
    }
    return list;
}

std::vector<int> affinity_mask() {
    std::vector<int> list;
#if defined(__linux__)
    // The kernel refuses a mask smaller than its own, so ask with more until it fits.
    for (int most = CPU_SETSIZE; most <= 1 << 20 && list.empty(); most *= 2) {
        cpu_set_t *mask = CPU_ALLOC(static_cast<size_t>(most));
        if (mask == nullptr) break;
        const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
        if (sched_getaffinity(0, bytes, mask) == 0)
            for (int c = 0; c < most; c++)
                if (CPU_ISSET_S(static_cast<size_t>(c), bytes, mask)) list.push_back(c);
        CPU_FREE(mask);
    }
#endif
    if (list.empty())
        for (int c = 0; c < static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); c++) list.push_back(c);
    return list;
}

Topology read_topology(const std::string &root, std::vector<int> processors) {
    Topology t;
    t.processors = std::move(processors);
    if (t.processors.empty()) t.processors = {0};
    std::sort(t.processors.begin(), t.processors.end());
    // A core counts once: for the lowest of its siblings that we may use.
    t.cores = 0;
    const Speeds speeds(root);
    struct Place {
        ptrdiff_t sibling;  // how many of its core come before it
        int64_t speed;
        int processor;
    };
    std::vector<Place> places;
    for (int c : t.processors) {
        const std::string file =
            root + "/sys/devices/system/cpu/cpu" + std::to_string(c) + "/topology/thread_siblings_list";
        const std::vector<int> siblings = parse_cpu_list(read_file(file).value_or(""));
        const auto before = std::count_if(siblings.begin(), siblings.end(), [&](int s) {
            return s < c && std::binary_search(t.processors.begin(), t.processors.end(), s);
        });
        t.cores += before == 0 ? 1 : 0;
        places.push_back({before, speeds.of(c), c});
    }
    std::stable_sort(places.begin(), places.end(), [](const Place &a, const Place &b) {
        return a.sibling != b.sibling ? a.sibling < b.sibling : a.speed > b.speed;
    });
    for (const Place &p : places) t.preferred.push_back(p.processor);
    t.quota = read_quota(root);
    t.model = read_model(root);
    return t;
}

namespace {

// Rounded up: with 1.5 processors two threads finish sooner than one.
unsigned bounded(size_t count, double quota) {
    const double most = static_cast<double>(count);
    return static_cast<unsigned>(std::max(1.0, quota > 0 ? std::min(most, std::ceil(quota)) : most));
}

}  // namespace

unsigned Topology::default_threads() const { return bounded(cores, quota); }
unsigned Topology::at_once() const { return bounded(processors.size(), quota); }

Memory read_memory(const std::string &root) {
    Memory m;
    const std::string text = read_file(root + "/proc/meminfo").value_or("");
    m.total = number_in_line(text, "MemTotal").value_or(0) * 1024;
    m.free = number_in_line(text, "MemAvailable").value_or(number_in_line(text, "MemFree").value_or(0)) * 1024;
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    if (m.total == 0 && sysconf(_SC_PHYS_PAGES) > 0)
        m.total = m.free =
            static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
#endif
    visit_cgroups(root, "memory", [&](const std::string &folder, bool v2) {
        const auto limit = read_number(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
        if (!limit || *limit <= 0) return;
        const auto most = static_cast<uint64_t>(*limit);
        const auto used = static_cast<uint64_t>(std::max<int64_t>(
            0, read_number(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0)));
        // Cached file pages count as used but are given back on demand; a mapped model is made of them.
        const std::string stat = read_file(folder + "/memory.stat").value_or("");
        const char *const inactive = v2 ? "inactive_file" : "total_inactive_file";
        const char *const active = v2 ? "active_file" : "total_active_file";
        const uint64_t cached = number_in_line(stat, inactive).value_or(0) + number_in_line(stat, active).value_or(0);
        const uint64_t held = used > cached ? used - cached : 0;
        m.total = std::min(m.total, most);
        m.free = std::min(m.free, most > held ? most - held : 0);
    });
    m.free = std::min(m.free, m.total);
    m.present = number_in_line(read_file(root + "/proc/self/status").value_or(""), "RssAnon").value_or(0) * 1024;
    return m;
}

}  // namespace cpu

#if defined(__aarch64__)
namespace {
// What the kernel lets this process use.
struct ArmFeatures {
#if defined(__APPLE__)
    static bool has(const char *name) {
        int value = 0;
        size_t bytes = sizeof(value);
        return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 && value != 0;
    }
    bool dotprod = has("hw.optional.arm.FEAT_DotProd"), i8mm = has("hw.optional.arm.FEAT_I8MM");
#elif defined(__linux__)
    bool dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0, i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#else
    bool dotprod = false, i8mm = false;
#endif
};
}  // namespace
#endif

namespace {

// __builtin_cpu_supports asks the operating system (XGETBV) as well as the processor.
Features detect_features() {
    Features f = 0;
#if defined(__aarch64__)
    const ArmFeatures arm;
    f |= cpu::kNeon;
    if (arm.dotprod) f |= cpu::kDotprod;
    if (arm.dotprod && arm.i8mm) f |= cpu::kI8mm;
#endif
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("popcnt") && f16c)
        f |= cpu::kAvx2;
    // Leaf 7.1, which not every compiler's __builtin_cpu_supports knows. It needs no state but AVX's.
    if ((f & cpu::kAvx2) != 0 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 4) != 0) f |= cpu::kAvxVnni;
    if ((f & cpu::kAvx2) != 0 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        f |= cpu::kAvx512;
    if ((f & cpu::kAvx512) != 0 && __builtin_cpu_supports("avx512bf16")) f |= cpu::kAvx512Bf16;
    if ((f & cpu::kAvx512) != 0 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
        __builtin_cpu_supports("avx512bitalg"))
        f |= cpu::kAvx512Vbmi;
#endif
    return f;
}

}  // namespace

// Asked once: a virtual machine traps on CPUID, which takes some 30 us, and every plan asks for every node.
Features cpu_features() {
    static const Features features = detect_features();
    return features;
}

}  // namespace ridge
