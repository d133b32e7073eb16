// What a device can do at most and what it takes to make it work, as measured figures: one form for every backend, so
// that whoever sets a measurement against a ceiling knows no backend.
//
//   name      unit    what
//   read      B/s     bytes read from memory
//   int8      MAC/s   multiply-adds of int8 into 32 bits
//   bf16      MAC/s   of bf16 into f32; absent where the device has no instruction for them
//   f32       MAC/s   of f32
//   barrier   s       a launch with nothing in it between two others, all workers meeting behind it
//   submit    s       what the host takes to start a step without launches and to see its end
//   cache     B       the largest cache: what is smaller may never be read from memory
//
// A figure may be there several times, for different numbers of workers or, where it depends on it, sizes of launch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct CeilingFigure {
    std::string name, unit;
    double value = 0;
    uint32_t workers = 0;       // that took part; 0: all of the device
    uint64_t launch_bytes = 0;  // that a launch reads; 0: as many as it takes for the best figure
};

struct CeilingFigures {
    std::string instructions;  // that were used: "avx512bf16"
    std::vector<CeilingFigure> list;

    // Of all workers, or of so many, with large launches; 0 where it was not measured.
    double get(std::string_view name, uint32_t workers = 0) const {
        for (const CeilingFigure &f : list)
            if (f.name == name && f.workers == workers && f.launch_bytes == 0) return f.value;
        return 0;
    }
};

}  // namespace ridge
