// Ceilings of devices, kept between runs: measured on this machine once, found again by what they depend on.
//
// A file per device, in $XDG_CACHE_HOME/ridge or ~/.cache/ridge. It is believed only where all of its key is that of
// the device at hand, so another processor, driver, system release, number of threads or way of measuring means that
// nothing was measured yet. A file that is cut short, foreign or edited into nonsense is as good as none, and replaced
// by the next measurement. Nothing in it comes from a data sheet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "backend/backends.h"
#include "measure/quiet.h"

namespace ridge {

// What the figures depend on.
struct CeilingKey {
    std::string backend, device, features, driver;
    uint32_t workers = 0;
    uint32_t method = 0;  // kCeilingMethod of the build that measured
    bool operator==(const CeilingKey &) const = default;
};
CeilingKey key_of(const Backend &device);

// Grows when a figure is measured in another way or means something else.
inline constexpr uint32_t kCeilingMethod = 1;

struct DeviceCeilings {
    CeilingKey key;
    CeilingFigures figures;
    int64_t measured_at = 0;  // seconds since 1970, UTC
    std::string contended;    // by what; empty: by nothing
};

class CeilingStore {
  public:
    // Empty: there is no place to keep anything, so nothing is found and nothing kept.
    explicit CeilingStore(std::filesystem::path folder = default_folder());
    static std::filesystem::path default_folder();

    std::optional<DeviceCeilings> find(const CeilingKey &key) const;
    // Whole or not at all, also where several processes do it at once. Why it could not be done; empty: it is done.
    // What was measured on a busy machine is not kept.
    std::string keep(const DeviceCeilings &c) const;
    std::filesystem::path path_of(const CeilingKey &key) const;

  private:
    std::filesystem::path folder_;
};

// The figures as the store writes them, and as programs read them.
nlohmann::ordered_json as_json(const CeilingFigures &figures);

// Measures now. Throws Error{limit} where the machine stays busy and that is to be refused, Error{unsupported} where
// the backend has no way to measure.
DeviceCeilings measure_ceilings(const BackendRow &backend, Backend &device, WhenBusy when_busy);

// "2026-11-30 14:50 UTC, 3 hours ago".
std::string when(int64_t measured_at, int64_t now);
int64_t seconds_since_1970();

}  // namespace ridge
