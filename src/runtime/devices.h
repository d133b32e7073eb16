// The devices that a model runs on: opened as the flags say, or as the model fits.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backends.h"
#include "runtime/auto_place.h"

namespace ridge {

// What a user says of devices: --device, --place, --experts, --driver, -t.
struct DeviceChoice {
    // That may be used: "cuda:0", "cpu"; "cuda" stands for all of its GPUs. Empty: all GPUs of the first backend that
    // has one that works, and the CPU.
    std::vector<std::string> names;
    std::string place;                          // empty: automatic
    std::string experts;                        // empty: automatic too, or with --place with their layers
    BackendOptions options = BackendOptions();  // of the shorter forms GCC 12 says that they may be used uninitialised
    std::span<const BackendRow> backends = ridge::backends();
};

// Opened devices, those only that the map uses, GPUs first.
struct PlacedDevices {
    std::vector<std::unique_ptr<Backend>> devices;
    DeviceMap map;
    std::string flags;  // the map as --place and --experts take it
    std::string text;   // in words, with the memory
    std::string notes;  // what else there is to say: a GPU that is not used, and why. Empty: nothing
};

// Places a model's program for so many sessions at a time. `model` names it in messages. Throws Error{usage} for a
// choice that cannot be, Error{unsupported} where a device is not there, Error{limit} with the numbers, and with what
// would fit, where it does not fit.
PlacedDevices place_model(const DeviceChoice &choice, const Program &plain, uint32_t trained,
                          const SessionOptions &options, unsigned sessions, std::string_view model);

// The device that counts where only one does: the first GPU that the choice names or, where it names nothing, that
// works; else the CPU.
std::unique_ptr<Backend> open_one(const DeviceChoice &choice);

}  // namespace ridge
