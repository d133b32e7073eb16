// Which device runs which layers: as --place and --experts say, or as it fits. Functions of numbers; devices.h opens
// the devices that they are about.
//
// Automatic placement, from the free memory that the devices report:
//   1. Whole layers, in order, fill the GPUs in order. What fits on the first one lies there alone.
//   2. What does not fit: of a model with experts, those of the last layers go to the CPU, as few layers' as possible.
//      They are most of the bytes, and a token reads few of them.
//   3. What still does not fit: the last layers go to the CPU.
//   4. What does not fit then is refused, before anything is loaded.
// A device needs the weights of its layers, their state for all sessions, the activations of a step, and a margin. The
// activations are those of the whole model on one device, which no part of it exceeds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "engine/place.h"
#include "engine/program.h"
#include "runtime/session.h"

namespace ridge {

// A device as placement sees it.
struct Room {
    std::string name;              // "cuda:0", "cpu", as --device takes it
    std::string key;               // "0", "cpu", as --place takes it
    uint64_t total = 0, free = 0;  // bytes
    bool is_host = false;          // the CPU
    bool shares_host = false;      // its memory is that of the CPU
};
Room room_of(const DeviceInfo &info, std::string key, bool is_host);

// Kept free on a device that runs a part of the model: a sixteenth of its memory, 512 MiB at most. It is for what
// cannot be known before: code and captured graphs in the driver, scratch memory of kernels, and on a GPU with a
// display what that takes later; on the CPU for the process itself.
uint64_t margin_of(const Room &room);

// A GPU that uses the host's memory has no more of it than the host has free. Its driver may say so wrongly: CUDA's
// counts pages of files, which the system gives back, as taken; then the host's figure is the right one. `host`: what
// the CPU reports.
void correct_shared_memory(std::span<Room> rooms, const DeviceInfo &host);

// What a model's sessions take of memory wherever they run.
struct Demand {
    const Program &plain;
    uint64_t activations = 0;     // of each device that runs a part
    std::vector<uint64_t> state;  // bytes of each state
    uint32_t context = 0;
};
// `sessions` at a time, each with a state and activations of its own. A context beyond the trained one counts as that.
Demand demand_of(const Program &plain, uint32_t trained, const SessionOptions &options, unsigned sessions);

// What a device takes.
struct Need {
    uint64_t weights = 0, state = 0, activations = 0;
    uint64_t bytes() const { return weights + state + activations; }
};
std::vector<Need> needs_of(const Demand &d, const DeviceMap &map, size_t n_devices);

// Whether the needs (one per room) fit, with the margins or without. Rooms that share memory share it here too.
bool fits(std::span<const Need> needs, std::span<const Room> rooms, bool with_margin = true);

// Layers that have experts.
std::vector<int32_t> expert_layers(const Program &p);

// `rooms`: the GPUs in order, then the CPU where it may be used. `experts`: of so many of the last layers that have
// any, they lie on the CPU; none: as few as have to. None where it does not fit.
std::optional<DeviceMap> automatic_map(const Demand &d, std::span<const Room> rooms,
                                       std::optional<uint32_t> experts = std::nullopt);

// A part of --place.
struct PlaceEntry {
    std::optional<unsigned> gpu;  // its number; none: the CPU
    uint32_t layers = 0;
    bool operator==(const PlaceEntry &) const = default;
};
// What --place says of a model of so many layers: "0:20,1:20,cpu:8", or the layers of the last entry left out, which
// takes the rest then. Layers that are not named are added as an entry of the CPU. Throws Error{usage}.
std::vector<PlaceEntry> parse_place(std::string_view text, uint32_t n_layers);

// What --experts says, "cpu" or "cpu:12": of how many of the last layers that have experts they lie on the CPU. Throws
// Error{usage}, also where the model has none.
uint32_t parse_experts(std::string_view text, const Program &p);

// The map of such entries. `rooms` has what they name. `experts` as for automatic_map; 0: with their layers.
DeviceMap map_of(std::span<const PlaceEntry> entries, uint32_t experts, const Program &p, std::span<const Room> rooms);

// The map as flags: "--place 0:28,cpu:8 --experts cpu:12".
std::string place_flags(const DeviceMap &map, const Program &p, std::span<const Room> rooms);
// The map in words: "cuda:0 layers 0-27 + embedding (4.2 of 79.1 GiB), cpu layers 28-35 + output (1.1 of 24.0 GiB)".
std::string describe(const DeviceMap &map, const Demand &d, std::span<const Room> rooms);
// What makes up a device's need: "4.3 GiB (weights 3.6, state 0.5, activations 0.2)".
std::string describe(const Need &need);

// Why a model is refused, and what would fit: a shorter context, with its map.
[[noreturn]] void refuse(const Program &plain, uint32_t trained, const SessionOptions &options, unsigned sessions,
                         std::span<const Room> rooms, std::optional<uint32_t> experts, std::string_view model);

}  // namespace ridge
