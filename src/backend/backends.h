// The backends by name: one row each, whether this build has them or not.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/device_ceilings.h"

namespace ridge {

struct BackendOptions {
    unsigned threads = 0;  // of the CPU; 0: as many as the machine grants
    unsigned index = 0;    // of the device among those of the backend
    std::string driver;    // library to open in place of the system's driver; empty: that one
};

struct BackendRow {
    std::string_view name;
    std::unique_ptr<Backend> (*open)(const BackendOptions &);  // nullptr: this build lacks it
    std::string_view absent;                                   // why, and what would add it
    CeilingFigures (*measure)(Backend &) = nullptr;            // what a device that `open` gave can do at most
    // How many devices there are. Throws Error{unsupported} with a sentence where the driver is missing or cannot be
    // used. nullptr: one, which is not numbered.
    unsigned (*count)(const BackendOptions &) = nullptr;
    bool is_gpu() const { return count != nullptr; }
};

// In the order in which devices are listed.
std::span<const BackendRow> backends();

// What names a device: "cpu", "cuda:1"; "cuda" is any of them, or the first where one is wanted.
struct DeviceName {
    const BackendRow *row = nullptr;
    std::optional<unsigned> index;
};
// Throws Error{usage} for a name or number that cannot be, listing the known names, Error{unsupported} for a backend
// that is absent.
DeviceName parse_device(std::string_view text, std::span<const BackendRow> rows = backends());
// "cuda:1", "cpu"; what a device calls itself in DeviceInfo::name.
std::string device_name(const BackendRow &row, unsigned index);

// Throws as parse_device, and Error{unsupported} where there is no device of that number.
std::unique_ptr<Backend> open_device(const BackendRow &row, unsigned index, BackendOptions options = {});
std::unique_ptr<Backend> open_backend(std::string_view name, const BackendOptions &options = {});

// The row that a device was opened by. Precondition: it is one of backends().
const BackendRow &row_of(const Backend &device);

}  // namespace ridge
