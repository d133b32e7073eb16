// Which device runs which layer, and the copies that follow from it.
#pragma once

#include <vector>

#include "engine/program.h"

namespace ridge {

// Device of each layer. The embedding goes with the first layer, the output with the last.
struct DeviceMap {
    std::vector<DeviceId> layer;    // (n_layers); empty: everything on device 0
    std::vector<DeviceId> experts;  // (n_layers), of each layer's experts; empty: with their layer
    DeviceId of(int32_t l) const;
    DeviceId experts_of(int32_t l) const;
    bool operator==(const DeviceMap &) const = default;
};

// The device of every node. Where experts lie elsewhere than their layer, so does all between the router and the
// combined rows: of a layer's activations only its input, the routes and its output are copied.
std::vector<DeviceId> devices_of(const Program &p, const DeviceMap &map);

// Gives every node, value and state its device. A program is placed once, before `fuse`: rules never join devices.
void place(Program &p, const DeviceMap &map);

// Adds a copy operation wherever a node reads a value of another device (once per value and device), before the first
// reader. Run after `fuse`.
void insert_copies(Program &p);

}  // namespace ridge
