#include "gguf/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge::gguf {
namespace {

[[noreturn]] void fail_open(const std::string &name, int error) {
    const char *advice = "";
    if (error == ENOENT) advice = "; check the path";
    if (error == EACCES || error == EPERM) advice = "; give this user read permission on the file and its folders";
    if (error == EMFILE || error == ENFILE) advice = "; raise the limit on open files (ulimit -n)";
    fail(ErrorKind::file, "{}: cannot be opened: {}{}", name, std::strerror(error), advice);
}

constexpr size_t kHuge = size_t{2} << 20;

size_t page_bytes() {
    static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

// Maps the file at an address that is a multiple of 2 MiB, as its pages in memory must be to be mapped by huge pages.
// Most file systems see to that themselves; those that pass on another one's files (overlays) do not. MAP_FAILED with
// errno.
void *map_aligned(size_t size, int fd) {
    const size_t page = page_bytes(), whole = (size + page - 1) / page * page;
    void *reserved =
        size < kHuge ? MAP_FAILED : mmap(nullptr, whole + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved == MAP_FAILED) return mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const auto start = reinterpret_cast<uintptr_t>(reserved), at = (start + kHuge - 1) / kHuge * kHuge;
    const size_t head = at - start, tail = kHuge - head;
    void *mapped = mmap(reinterpret_cast<void *>(at), size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    if (mapped == MAP_FAILED) {
        const int error = errno;
        munmap(reserved, whole + kHuge);
        errno = error;
        return mapped;
    }
    if (head > 0) munmap(reserved, head);
    if (tail > 0) munmap(reinterpret_cast<void *>(at + whole), tail);
    return mapped;
}

}  // namespace

Mapping Mapping::open(const std::filesystem::path &path) {
    Mapping m;
    m.path_ = path;
    m.name_ = printable(path.native(), std::string::npos);
    // O_NONBLOCK: opening a pipe that nobody writes would hang. It changes nothing for regular files.
    m.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (m.fd_ < 0) fail_open(m.name_, errno);
    struct stat st {};
    if (fstat(m.fd_, &st) != 0) fail_open(m.name_, errno);
    if (S_ISDIR(st.st_mode)) fail(ErrorKind::file, "{}: is a directory; name a .gguf file in it", m.name_);
    if (!S_ISREG(st.st_mode))
        fail(ErrorKind::file, "{}: is a device, pipe or socket; a model is mapped and must be a regular file", m.name_);
    if (st.st_size == 0) fail(ErrorKind::file, "{}: is empty (0 bytes); download or copy it again", m.name_);

    const auto size = static_cast<size_t>(st.st_size);
    void *at = map_aligned(size, m.fd_);
    if (at == MAP_FAILED) {
        const int error = errno;
        fail(ErrorKind::file, "{}: its {} bytes cannot be mapped: {}; check the limit on address space (ulimit -v)",
             m.name_, size, std::strerror(error));
    }
    m.bytes_ = {static_cast<const std::byte *>(at), size};
    return m;
}

Mapping::Mapping(Mapping &&other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      bytes_(std::exchange(other.bytes_, {})),
      path_(std::move(other.path_)),
      name_(std::move(other.name_)) {}

Mapping &Mapping::operator=(Mapping &&other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(bytes_, other.bytes_);
    path_.swap(other.path_);
    name_.swap(other.name_);
    return *this;
}

Mapping::~Mapping() {
    if (!bytes_.empty()) munmap(const_cast<std::byte *>(bytes_.data()), bytes_.size());
    if (fd_ >= 0) ::close(fd_);
}

void Mapping::fail_read(size_t from, size_t to) const {
    fail(ErrorKind::file,
         "{}: bytes {} to {} cannot be read: the disk failed or the file became shorter; check the disk", name_, from,
         to);
}

void Mapping::prefer_huge_pages() const {
#ifdef MADV_HUGEPAGE
    madvise(const_cast<std::byte *>(bytes_.data()), bytes_.size(), MADV_HUGEPAGE);  // a wish; kernels may lack them
#endif
}

void Mapping::load(size_t from, size_t to) const {
    const size_t page = page_bytes();
    from = from / page * page;
    to = std::min((to + page - 1) / page * page, (bytes_.size() + page - 1) / page * page);
    if (from >= to) return;
    void *at = const_cast<std::byte *>(bytes_.data()) + from;
    const size_t n = to - from;
#ifdef MADV_POPULATE_READ
    if (madvise(at, n, MADV_POPULATE_READ) == 0) return;
    const int error = errno;
    if (error == EFAULT || error == EHWPOISON || error == EIO) fail_read(from, to);
#endif
    // Kernels before 5.14, and other systems: a read of each page. volatile, or the loop is optimised away.
    madvise(at, n, MADV_WILLNEED);
    for (size_t i = from; i < to; i += page) static_cast<void>(*static_cast<const volatile std::byte *>(&bytes_[i]));
}

void Mapping::copy(size_t from, size_t to) const {
#if defined(__linux__)
    from = from / kHuge * kHuge;
    to = std::min((to + kHuge - 1) / kHuge * kHuge, bytes_.size());
    if (from >= to) return;
    const size_t n = to - from, pages = (n + page_bytes() - 1) / page_bytes() * page_bytes();
    const auto fail_memory = [&] {
        fail(ErrorKind::limit, "{}: no memory for a copy of bytes {} to {}; switch the lever huge_weights off", name_,
             from, to);
    };
    // One huge page more than needed, to begin where one begins.
    const size_t reserve = (n + kHuge - 1) / kHuge * kHuge + kHuge;
    void *reserved = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved == MAP_FAILED) fail_memory();
    const auto start = reinterpret_cast<uintptr_t>(reserved), at = (start + kHuge - 1) / kHuge * kHuge;
    auto *own = reinterpret_cast<std::byte *>(at);
    // What is moved away belongs to whoever maps something there next, so only what is around it is given back then.
    struct Unmap {
        uintptr_t begin, hole, after, end;
        ~Unmap() {
            if (hole > begin) munmap(reinterpret_cast<void *>(begin), hole - begin);
            if (end > after) munmap(reinterpret_cast<void *>(after), end - after);
        }
    } unmap{start, at, at, start + reserve};
    madvise(own, reserve - kHuge, MADV_HUGEPAGE);
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd_, own + done, n - done, static_cast<off_t>(from + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail_read(from + done, to);
        done += static_cast<size_t>(got);
    }
    void *there = const_cast<std::byte *>(bytes_.data()) + from;
    if (mprotect(own, pages, PROT_READ) != 0 ||
        mremap(own, pages, pages, MREMAP_MAYMOVE | MREMAP_FIXED, there) == MAP_FAILED)
        fail_memory();
    unmap.after = at + pages;
#else
    load(from, to);
#endif
}

}  // namespace ridge::gguf
