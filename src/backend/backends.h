// The backends by name: one row each, whether this build has them or not.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/device_ceilings.h"

namespace ridge {

struct BackendOptions {
    unsigned threads = 0;  // of the CPU; 0: as many as the machine grants
    unsigned index = 0;    // of a GPU among those of its backend
    std::string driver;    // a library to take for the GPU's driver; empty: the system's
};

struct BackendRow {
    std::string_view name;
    std::unique_ptr<Backend> (*open)(const BackendOptions &);  // nullptr: this build lacks it
    std::string_view absent;                                   // why, and what would add it
    CeilingFigures (*measure)(Backend &) = nullptr;            // what a device that `open` gave can do at most
};

// In the order in which devices are listed.
std::span<const BackendRow> backends();

// Throws Error{usage} for an unknown name, listing the known ones, Error{unsupported} for a backend that is absent.
std::unique_ptr<Backend> open_backend(std::string_view name, const BackendOptions &options = {});

}  // namespace ridge
