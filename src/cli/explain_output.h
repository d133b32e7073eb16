// What `ridge explain` says: words for people, the same figures as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "measure/ceilings_store.h"
#include "measure/explain.h"

namespace ridge {

// Words of `text` in lines of at most 100 columns, the first after `first`, the others after as many blanks.
std::string wrapped(std::string_view first, std::string_view text);

std::string to_string(const Phase &phase, const DeviceCeilings &ceilings);
nlohmann::ordered_json as_json(const Phase &phase);

}  // namespace ridge
