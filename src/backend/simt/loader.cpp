#include "backend/simt/loader.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "backend/simt/event.h"
#include "core/error.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace ridge::simt {
namespace {

// Large against what a copy costs to start, small enough that pinning the buffers takes a few milliseconds.
constexpr size_t kPiece = size_t{4} << 20;
constexpr unsigned kMostThreads = 8;

// Has the pages of a piece read and mapped at once instead of one fault after the other. A file that was cut short is
// an error here, where a fault would be SIGBUS.
void bring_in(std::span<const std::byte> s) {
#if defined(__linux__) && defined(MADV_POPULATE_READ)
    static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(s.data()) / page * page;
    const auto end = reinterpret_cast<uintptr_t>(s.data() + s.size());
    auto *at = reinterpret_cast<void *>(begin);
    madvise(at, end - begin, MADV_WILLNEED);
    if (madvise(at, end - begin, MADV_POPULATE_READ) != 0 && (errno == EFAULT || errno == EIO || errno == EHWPOISON))
        fail(ErrorKind::file, "a model file became shorter or unreadable while it was loaded; check it and its disk");
#else
    static_cast<void>(s);
#endif
}

// A thread's stream and its two buffers.
class Lane {
  public:
    Lane(const Driver &driver, int device) : driver_(driver) {
        check(driver_, driver_.use(device), "choosing the device");
        check(driver_, driver_.create_stream(&stream_), "making a stream");
        for (Staging &s : staging_)
            check(driver_, driver_.allocate_host(&s.memory, kPiece), "allocating pinned memory");
    }
    ~Lane() {
        if (stream_) driver_.synchronize(stream_);
        for (Staging &s : staging_)
            if (s.memory) driver_.release_host(s.memory);
        if (stream_) driver_.destroy_stream(stream_);
    }
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;

    void send(const Transfer &piece) {
        Staging &s = staging_[next_];
        next_ = 1 - next_;
        if (s.sent)
            s.sent->wait();
        else
            s.sent.emplace(driver_);
        bring_in(piece.from);
        std::memcpy(s.memory, piece.from.data(), piece.from.size());
        check(driver_, driver_.to_device(piece.to, s.memory, piece.from.size(), stream_), "copying to the device");
        s.sent->record(stream_);
    }
    void finish() { check(driver_, driver_.synchronize(stream_), "copying to the device"); }

  private:
    struct Staging {
        void *memory = nullptr;     // pinned, kPiece bytes
        std::optional<Event> sent;  // its last copy; none before the first
    };
    const Driver &driver_;
    Handle stream_ = nullptr;
    Staging staging_[2];
    size_t next_ = 0;
};

}  // namespace

bool load_to_device(const Driver &driver, int device, std::span<const Transfer> transfers,
                    const std::function<bool(uint64_t bytes)> &loaded, unsigned threads) {
    std::vector<Transfer> pieces;
    for (const Transfer &t : transfers)
        for (size_t at = 0; at < t.from.size(); at += kPiece)
            pieces.push_back({t.to + at, t.from.subspan(at, std::min(kPiece, t.from.size() - at))});
    if (threads == 0) threads = std::clamp(std::thread::hardware_concurrency() / 2, 1U, kMostThreads);
    threads = static_cast<unsigned>(std::min<size_t>(threads, pieces.size()));

    std::atomic<size_t> next{0};
    std::mutex mutex;  // of what follows, and of `loaded`
    bool stopped = false;
    std::exception_ptr error;
    const auto work = [&] {
        try {
            Lane lane(driver, device);
            for (size_t i; (i = next.fetch_add(1)) < pieces.size();) {
                lane.send(pieces[i]);
                const std::lock_guard lock(mutex);
                if (stopped || loaded(pieces[i].from.size())) continue;
                stopped = true;
                next = pieces.size();
            }
            lane.finish();
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!error) error = std::current_exception();
            next = pieces.size();
        }
    };
    std::vector<std::thread> others;
    for (unsigned t = 1; t < threads; t++) try {
            others.emplace_back(work);
        } catch (const std::system_error &) {
            break;  // those that are there do it
        }
    if (!pieces.empty()) work();
    for (std::thread &t : others) t.join();
    if (error) std::rethrow_exception(error);
    return !stopped;
}

}  // namespace ridge::simt
