// One GPU through the driver's table: its memory, its stream, its code. Everything asked of it happens in the order of
// one stream, so a copy to the host comes after the launches before it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/simt/driver.h"
#include "backend/simt/modules.h"

namespace ridge::simt {

class Device {
  public:
    Device(const Driver &driver, int index, std::span<const Image> images);
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    const Driver &driver() const { return driver_; }
    const DriverDevice &description() const { return description_; }
    int index() const { return index_; }
    std::string name() const;  // "cuda:0"
    Handle stream() const { return stream_; }
    Modules &modules() { return modules_; }

    // For this thread's driver calls.
    void use() const;
    // Waits for all that was submitted. Throws where a kernel failed.
    void synchronize() const;

    Buffer allocate(size_t bytes, std::string_view what, bool zero = true);
    void upload(Address to, std::span<const std::byte> from);
    void download(Address from, std::span<std::byte> to);
    std::shared_ptr<void> host_memory(size_t bytes);  // pinned
    // What launches share (Tile::shared_bytes), at least so large. As they come one after the other on the stream, and
    // each leaves the zeros that it found, one serves all executables: with the experts on the CPU there are hundreds.
    Buffer workspace(size_t bytes);
    // A table that kernels only read: what `fill` made of `key` first, as long as anyone holds it.
    Buffer table(const std::string &key, size_t bytes, const std::function<void(std::span<std::byte>)> &fill);

  private:
    static constexpr size_t kStaging = size_t{4} << 20;
    bool is_pinned(std::span<const std::byte> s) const;

    const Driver &driver_;
    const int index_;
    DriverDevice description_;
    Handle stream_ = nullptr;
    void *staging_ = nullptr;
    Buffer workspace_;  // without its owner, who are the executables
    std::weak_ptr<void> workspace_owner_;
    Modules modules_;
    std::map<std::string, std::weak_ptr<void>> tables_;
    std::shared_ptr<std::vector<std::span<std::byte>>> pinned_ = std::make_shared<std::vector<std::span<std::byte>>>();
};

}  // namespace ridge::simt
