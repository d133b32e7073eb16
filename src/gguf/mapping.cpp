#include "gguf/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

size_t page_bytes() {
    static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

}  // namespace

Mapping Mapping::open(const std::filesystem::path &path) {
    Mapping m;
    m.path_ = path;
    m.name_ = printable(path.native(), std::string::npos);
    // O_NONBLOCK: opening a pipe that nobody writes would hang. It changes nothing for regular files.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fail_open(m.name_, errno);
    struct Close {
        int fd;
        ~Close() { ::close(fd); }  // a mapping outlives its descriptor
    } close{fd};

    struct stat st {};
    if (fstat(fd, &st) != 0) fail_open(m.name_, errno);
    if (S_ISDIR(st.st_mode)) fail(ErrorKind::file, "{}: is a directory; name a .gguf file in it", m.name_);
    if (!S_ISREG(st.st_mode))
        fail(ErrorKind::file, "{}: is a device, pipe or socket; a model is mapped and must be a regular file", m.name_);
    if (st.st_size == 0) fail(ErrorKind::file, "{}: is empty (0 bytes); download or copy it again", m.name_);

    const auto size = static_cast<size_t>(st.st_size);
    void *at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) {
        const int error = errno;
        fail(ErrorKind::file, "{}: its {} bytes cannot be mapped: {}; check the limit on address space (ulimit -v)",
             m.name_, size, std::strerror(error));
    }
    m.bytes_ = {static_cast<const std::byte *>(at), size};
    return m;
}

Mapping::Mapping(Mapping &&other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), path_(std::move(other.path_)), name_(std::move(other.name_)) {}

Mapping &Mapping::operator=(Mapping &&other) noexcept {
    std::swap(bytes_, other.bytes_);
    path_.swap(other.path_);
    name_.swap(other.name_);
    return *this;
}

Mapping::~Mapping() {
    if (!bytes_.empty()) munmap(const_cast<std::byte *>(bytes_.data()), bytes_.size());
}

void Mapping::load(size_t from, size_t to) const {
    const size_t page = page_bytes();
    from = from / page * page;
    to = std::min((to + page - 1) / page * page, (bytes_.size() + page - 1) / page * page);
    if (from >= to) return;
    void *at = const_cast<std::byte *>(bytes_.data()) + from;
    const size_t n = to - from;
    madvise(at, n, MADV_WILLNEED);
#ifdef MADV_POPULATE_READ
    if (madvise(at, n, MADV_POPULATE_READ) == 0) return;
    const int error = errno;
    if (error == EFAULT || error == EHWPOISON || error == EIO)
        fail(ErrorKind::file,
             "{}: bytes {} to {} cannot be read: the disk failed or the file became shorter; check the disk", name_,
             from, to);
#endif
    // Kernels before 5.14, and other systems: a read of each page. volatile, or the loop is optimised away.
    for (size_t i = from; i < to; i += page) static_cast<void>(*static_cast<const volatile std::byte *>(&bytes_[i]));
}

}  // namespace ridge::gguf
