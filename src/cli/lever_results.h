// The results of docs/results/levers, built into the program (cmake/lever_results.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace ridge {

struct CommittedResult {
    std::string_view path, json;
};
std::vector<CommittedResult> committed_results();

}  // namespace ridge
