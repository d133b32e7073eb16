// A model file opened for measurements: its weights in memory before anything is timed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "measure/quiet.h"
#include "runtime/model.h"

namespace ridge {

// The memory that the weights lie in is decided when they are loaded, so sides that differ in it have a load of their
// own. Weights that do not fit the free memory stay on the disk. Throws as Model::open, and Error{limit} where pages of
// its own do not fit.
std::unique_ptr<Model> open_loaded(const std::string &path, const OpenOptions &options, gguf::Pages pages);

// "device map: cuda:0 layers 0-35 + embedding + output (4.2 of 79.1 GiB free); --place 0:36", with a line's end.
std::string placement_note(const PlacedDevices &placed);

// The same on stderr, where there is more to tell than that all is on the CPU.
void note_placement(const Model &model);

// What others do to the machine now. Throws Error{limit} where it is not quiet, unless `force`; `marks` is what is
// marked then: "every row".
Contention observe_quiet(bool force, std::string_view marks);

// A model file, once for each kind of memory that its weights are wanted in.
class Loads {
  public:
    Loads(std::string path, OpenOptions options) : path_(std::move(path)), options_(std::move(options)) {}
    Model &for_levers(const LeverSet &levers);
    double seconds() const { return seconds_; }  // that loading took

  private:
    std::string path_;
    OpenOptions options_;
    std::map<gguf::Pages, std::unique_ptr<Model>> loaded_;
    double seconds_ = 0;
};

}  // namespace ridge
