// A model file opened for measurements: its weights in memory before anything is timed.
#pragma once

#include <memory>
#include <string>

#include "runtime/model.h"

namespace ridge {

// The memory that the weights lie in is decided when they are loaded, so sides that differ in it have a load of their
// own. Weights that do not fit the free memory stay on the disk. Throws as Model::open, and Error{limit} where pages of
// its own do not fit.
std::unique_ptr<Model> open_loaded(const std::string &path, const OpenOptions &options, gguf::Pages pages);

}  // namespace ridge
