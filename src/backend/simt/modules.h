// The code objects on a device: loaded file by file when a function of it is first wanted.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "backend/simt/driver.h"
#include "backend/simt/images.h"

namespace ridge::simt {

class Modules {
  public:
    Modules(const Driver &driver, std::span<const Image> images) : driver_(driver), images_(images) {}
    ~Modules();
    Modules(const Modules &) = delete;
    Modules &operator=(const Modules &) = delete;

    // Precondition: the device is in use by this thread. Throws Error{unsupported} where no image of the file runs on
    // it. `name` is looked up once; it must stay where it is.
    Handle function(std::string_view file, std::string_view name);
    // Lets a function have more dynamic shared memory than every function has.
    void allow(Handle function, size_t shared_bytes);
    // Which of the images fit: "gfx1151". Empty before the first function.
    const std::string &target() const { return target_; }

  private:
    Handle module(std::string_view file);
    const Driver &driver_;
    std::span<const Image> images_;
    std::map<std::string, Handle, std::less<>> loaded_;
    std::unordered_map<const char *, Handle> functions_;  // by the name's address: names are literals
    std::unordered_map<Handle, size_t> allowed_;
    std::string target_;
};

}  // namespace ridge::simt
