#include "backend/simt/simt_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace ridge::simt {
namespace {

std::string mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

Device::Device(const Driver &driver, int index, std::span<const Image> images)
    : driver_(driver), index_(index), modules_(driver, images) {
    use();
    check(driver_, driver_.describe(index_, description_), "asking for the device's properties");
    check(driver_, driver_.create_stream(&stream_), "making a stream");
    check(driver_, driver_.allocate_host(&staging_, kStaging), "allocating pinned memory");
}

Device::~Device() {
    driver_.use(index_);
    driver_.synchronize(stream_);
    driver_.release_host(staging_);
    driver_.destroy_stream(stream_);
}

void Device::use() const { check(driver_, driver_.use(index_), "choosing the device"); }

std::string Device::name() const { return fmt::format("{}:{}", driver_.is_cuda ? "cuda" : "hip", index_); }

void Device::synchronize() const { check(driver_, driver_.synchronize(stream_), "running kernels"); }

Buffer Device::table(const std::string &key, size_t bytes, const std::function<void(std::span<std::byte>)> &fill) {
    std::weak_ptr<void> &known = tables_[key];
    if (std::shared_ptr<void> owner = known.lock()) return {reinterpret_cast<Address>(owner.get()), bytes, owner};
    std::vector<std::byte> host(bytes);
    fill(host);
    Buffer b = allocate(bytes, "a table", false);
    upload(b.address, host);
    known = b.owner;
    return b;
}

Buffer Device::allocate(size_t bytes, std::string_view what, bool zero) {
    use();
    const size_t size = std::max<size_t>((bytes + 255) / 256 * 256, 256);
    Address a = 0;
    const int code = driver_.allocate(&a, size);
    if (code == Driver::kOutOfMemory) {
        size_t free = 0, total = 0;
        driver_.memory(&free, &total);
        fail(ErrorKind::limit,
             "{}: {} for {} do not fit: {} of {} are free. A shorter context, a smaller model or fewer layers there "
             "(--place) would",
             name(), mebibytes(bytes), what, mebibytes(free), mebibytes(total));
    }
    check(driver_, code, "allocating memory");
    const Driver *driver = &driver_;
    const int index = index_;
    std::shared_ptr<void> owner(reinterpret_cast<void *>(a), [driver, index](void *p) {
        driver->use(index);
        driver->release(reinterpret_cast<Address>(p));
    });
    if (zero) check(driver_, driver_.fill(a, 0, size, stream_), "clearing memory");
    return {a, bytes, std::move(owner)};
}

void Device::upload(Address to, std::span<const std::byte> from) {
    use();
    for (size_t at = 0; at < from.size(); at += kStaging) {
        const size_t n = std::min(kStaging, from.size() - at);
        std::memcpy(staging_, from.data() + at, n);
        check(driver_, driver_.to_device(to + at, staging_, n, stream_), "copying to the device");
        synchronize();
    }
}

void Device::download(Address from, std::span<std::byte> to) {
    use();
    if (is_pinned(to)) {
        if (!to.empty()) check(driver_, driver_.to_host(to.data(), from, to.size(), stream_), "copying to the host");
        synchronize();
        return;
    }
    for (size_t at = 0; at < to.size(); at += kStaging) {
        const size_t n = std::min(kStaging, to.size() - at);
        check(driver_, driver_.to_host(staging_, from + at, n, stream_), "copying to the host");
        synchronize();
        std::memcpy(to.data() + at, staging_, n);
    }
    if (to.empty()) synchronize();
}

std::shared_ptr<void> Device::host_memory(size_t bytes) {
    use();
    void *p = nullptr;
    check(driver_, driver_.allocate_host(&p, std::max<size_t>(bytes, 1)), "allocating pinned memory");
    const auto pinned = pinned_;
    pinned->push_back({static_cast<std::byte *>(p), bytes});
    const Driver *driver = &driver_;
    const int index = index_;
    return {p, [driver, index, pinned](void *q) {
                std::erase_if(*pinned, [q](const auto &s) { return s.data() == q; });
                driver->use(index);
                driver->release_host(q);
            }};
}

Buffer Device::workspace(size_t bytes) {
    std::shared_ptr<void> owner = workspace_owner_.lock();
    if (!owner || workspace_.bytes < bytes) {
        workspace_ = allocate(bytes, "a workspace of kernels");
        owner = std::exchange(workspace_.owner, nullptr);
        workspace_owner_ = owner;
    }
    return {workspace_.address, workspace_.bytes, std::move(owner)};
}

bool Device::is_pinned(std::span<const std::byte> s) const {
    return std::any_of(pinned_->begin(), pinned_->end(), [&](const auto &p) {
        return s.data() >= p.data() && s.data() + s.size() <= p.data() + p.size();
    });
}

}  // namespace ridge::simt
