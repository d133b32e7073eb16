// Ceilings of a device as people and programs read them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "measure/ceilings_store.h"

namespace ridge {

// "24.1 GB/s", "310 GMAC/s", "0.21 us", "32 MiB".
std::string figure_text(double value, std::string_view unit);
// A line per figure, `indent` before each: "read      24.1 GB/s, with 1 thread 12.3 GB/s".
std::string figures_text(const DeviceCeilings &c, std::string_view indent);
nlohmann::ordered_json as_json(const DeviceCeilings &c);

}  // namespace ridge
