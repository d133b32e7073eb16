// What a gate counted.
#pragma once

#include <cstddef>
#include <string>

namespace ridge {

struct GateResult {
    size_t checked = 0;     // elements
    size_t nbad = 0;        // of them
    std::string first_bad;  // says where and how, empty if none
    // Having checked nothing is a failure.
    bool ok() const { return checked > 0 && nbad == 0; }
};

}  // namespace ridge
