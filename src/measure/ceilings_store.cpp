#include "measure/ceilings_store.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "core/error.h"

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kKind = "ridge ceilings";
constexpr std::streamsize kMostBytes = 1 << 20;

Json file_of(const DeviceCeilings &c) {
    return {{"kind", kKind},
            {"backend", c.key.backend},
            {"device", c.key.device},
            {"features", c.key.features},
            {"driver", c.key.driver},
            {"workers", c.key.workers},
            {"method", c.key.method},
            {"measured_at", c.measured_at},
            {"instructions", c.figures.instructions},
            {"figures", as_json(c.figures)}};
}

// Throws what nlohmann::json throws, or std::runtime_error, for anything that keep() has not written.
DeviceCeilings from_json(const Json &j) {
    if (j.at("kind").get<std::string>() != kKind) throw std::runtime_error("another kind of file");
    DeviceCeilings c;
    c.key = {j.at("backend").get<std::string>(), j.at("device").get<std::string>(), j.at("features").get<std::string>(),
             j.at("driver").get<std::string>(),  j.at("workers").get<uint32_t>(),   j.at("method").get<uint32_t>()};
    c.measured_at = j.at("measured_at").get<int64_t>();
    c.figures.instructions = j.at("instructions").get<std::string>();
    for (const Json &f : j.at("figures")) {
        CeilingFigure figure{f.at("name").get<std::string>(), f.at("unit").get<std::string>(),
                             f.at("value").get<double>(), f.at("workers").get<uint32_t>(),
                             f.at("launch_bytes").get<uint64_t>()};
        if (!std::isfinite(figure.value) || figure.value <= 0) throw std::runtime_error("not a figure");
        c.figures.list.push_back(std::move(figure));
    }
    for (const char *name : {"read", "f32"})
        if (c.figures.get(name) <= 0) throw std::runtime_error("incomplete");
    return c;
}

// FNV-1a: only names files; the whole key is compared.
uint64_t hash(const CeilingKey &k) {
    uint64_t h = 0xcbf29ce484222325U;
    const std::string text =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}", k.backend, k.device, k.features, k.driver, k.workers, k.method);
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return h;
}

// An absolute path in the environment; the XDG specification wants others ignored.
fs::path folder_from(const char *variable) {
    const char *text = std::getenv(variable);
    const fs::path path = text != nullptr ? text : "";
    return path.is_absolute() ? path : fs::path();
}

}  // namespace

Json as_json(const CeilingFigures &figures) {
    Json list = Json::array();
    for (const CeilingFigure &f : figures.list)
        list.push_back({{"name", f.name},
                        {"unit", f.unit},
                        {"value", f.value},
                        {"workers", f.workers},
                        {"launch_bytes", f.launch_bytes}});
    return list;
}

CeilingKey key_of(const Backend &device) {
    const DeviceInfo i = device.info();
    return {i.name, i.description, device.feature_names(device.features()), i.driver, i.workers, kCeilingMethod};
}

CeilingStore::CeilingStore(fs::path folder) : folder_(std::move(folder)) {}

fs::path CeilingStore::default_folder() {
    if (const fs::path cache = folder_from("XDG_CACHE_HOME"); !cache.empty()) return cache / "ridge";
    if (const fs::path home = folder_from("HOME"); !home.empty()) return home / ".cache" / "ridge";
    return {};
}

fs::path CeilingStore::path_of(const CeilingKey &key) const {
    return folder_ / fmt::format("ceilings-{:016x}.json", hash(key));
}

std::optional<DeviceCeilings> CeilingStore::find(const CeilingKey &key) const {
    if (folder_.empty()) return {};
    std::error_code error;
    const fs::path path = path_of(key);
    if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > static_cast<uintmax_t>(kMostBytes) || error)
        return {};
    std::ifstream in(path, std::ios::binary);
    std::string text(static_cast<size_t>(kMostBytes), '\0');
    in.read(text.data(), kMostBytes);
    text.resize(static_cast<size_t>(in.gcount()));
    try {
        DeviceCeilings c = from_json(Json::parse(text));
        if (c.key == key) return c;
    } catch (const std::exception &) {  // not ours, or no longer whole
    }
    return {};
}

std::string CeilingStore::keep(const DeviceCeilings &c) const {
    if (!c.contended.empty()) return "the machine was busy";
    if (folder_.empty()) return "neither XDG_CACHE_HOME nor HOME is an absolute path";
    std::error_code error;
    fs::create_directories(folder_, error);
    const fs::path path = path_of(c.key);
#if defined(__unix__) || defined(__APPLE__)
    const auto process = static_cast<long>(getpid());
#else
    const long process = 0;
#endif
    fs::path part = path;
    part += fmt::format(".{}.part", process);
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out << file_of(c).dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
    out.close();
    if (!out) {
        fs::remove(part, error);
        return fmt::format("{} cannot be written", part.string());
    }
    fs::rename(part, path, error);
    if (!error) return {};
    const std::string why = error.message();
    fs::remove(part, error);
    return fmt::format("{} cannot be replaced: {}", path.string(), why);
}

DeviceCeilings measure_ceilings(const BackendRow &backend, Backend &device, WhenBusy when_busy) {
    if (backend.measure == nullptr)
        fail(ErrorKind::unsupported, "the {} backend has no way to measure its ceilings", backend.name);
    constexpr unsigned kTries = 3;
    for (unsigned attempt = 1;; attempt++) {
        std::string why = observe(0.3).reason();
        if (why.empty() || when_busy == WhenBusy::mark) {
            QuietWatch watch;
            DeviceCeilings c;
            c.key = key_of(device);
            c.figures = backend.measure(device);
            if (const std::string during = watch.lap().reason(); !during.empty()) why = during;
            c.measured_at = seconds_since_1970();
            c.contended = why;
            if (why.empty() || when_busy == WhenBusy::mark) return c;
        }
        if (attempt == kTries)
            fail(ErrorKind::limit,
                 "the machine is not quiet: {}; --force measures all the same and marks what it measured", why);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
}

int64_t seconds_since_1970() { return static_cast<int64_t>(std::time(nullptr)); }

std::string when(int64_t measured_at, int64_t now) {
    const auto time = static_cast<std::time_t>(measured_at);
    std::tm utc{};
    char text[64] = "at an unknown time";
    if (gmtime_r(&time, &utc) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
    const int64_t age = now - measured_at;
    const auto ago = [&](int64_t unit, const char *name) {
        const int64_t n = age / unit;
        return fmt::format("{}, {} {}{} ago", text, n, name, n == 1 ? "" : "s");
    };
    if (age < 0) return fmt::format("{}, in the future", text);
    if (age < 60) return fmt::format("{}, just now", text);
    if (age < 3600) return ago(60, "minute");
    if (age < 86400) return ago(3600, "hour");
    return ago(86400, "day");
}

}  // namespace ridge
