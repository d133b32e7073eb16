#include "gguf/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge::gguf {
namespace {

// Large enough that a system call and a hand-over cost nothing beside it, small enough to stay in the last-level cache.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

// Bytes free for this user on the file system of `folder`; empty where it does not tell.
std::optional<uint64_t> free_bytes(const std::filesystem::path &folder) {
    struct statvfs fs {};
    if (statvfs(folder.empty() ? "." : folder.c_str(), &fs) != 0 || fs.f_blocks == 0) return std::nullopt;
    return uint64_t{fs.f_bavail} * fs.f_frsize;
}

std::string why(int error, const std::filesystem::path &folder, uint64_t needed) {
    std::string text = std::strerror(error);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
        text += fmt::format("; the file needs {} bytes", needed);
        if (const auto n = free_bytes(folder)) text += fmt::format(", {} are free", *n);
        text += error == EFBIG ? "; check the limit on file sizes (ulimit -f) or write to another file system"
                               : "; make room or write to another disk";
    }
    if (error == EACCES || error == EROFS) text += "; write into a folder that this user may write to";
    if (error == ENOENT) text += "; create the folder first";
    return text;
}

}  // namespace

Output::Output(const std::filesystem::path &path, uint64_t bytes)
    : path_(path), name_(printable(path.native(), std::string::npos)), bytes_(bytes) {
    std::error_code ignored;
    // Through a link the file it names is replaced, not the link.
    if (std::filesystem::is_symlink(path, ignored)) {
        const auto target = std::filesystem::weakly_canonical(path, ignored);
        if (!target.empty()) path_ = target;
    }
    const auto status = std::filesystem::status(path_, ignored);
    if (std::filesystem::is_directory(status)) fail(ErrorKind::file, "{}: is a directory; name a file in it", name_);
    // Renaming over a device would replace it for every program.
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        fail(ErrorKind::file, "{}: is no regular file; name one, or one that does not exist yet", name_);
    create();
    try {
        reserve();
    } catch (...) {
        ::close(fd_);
        ::unlink(temporary_.c_str());
        throw;
    }
}

void Output::create() {
    // The number tells apart the temporary files of several writers and those that a kill left behind.
    for (unsigned attempt = 0; fd_ < 0; attempt++) {
        temporary_ = path_;
        temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), attempt);
        fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd_ < 0 && errno != EEXIST)
            fail(ErrorKind::file, "{}: cannot be created: {}", name_, why(errno, path_.parent_path(), bytes_));
    }
}

// Asks for the space now: a full disk is found before minutes of writing, and the file is in one stretch.
void Output::reserve() {
    // First by the numbers: some file systems would fill up before they refuse.
    if (const auto n = free_bytes(path_.parent_path()); n && *n < bytes_)
        fail(ErrorKind::file, "{}: cannot be written: {}", name_, why(ENOSPC, path_.parent_path(), bytes_));
#ifdef __linux__
    if (bytes_ > 0 && ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes_)) == 0) return;
    if (bytes_ > 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        fail(ErrorKind::file, "{}: cannot be written: {}", name_, why(errno, path_.parent_path(), bytes_));
#endif
    if (::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
        fail(ErrorKind::file, "{}: cannot be written: {}", name_, why(errno, path_.parent_path(), bytes_));
}

Output::~Output() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
}

void Output::put(const void *data, size_t bytes, uint64_t offset) {
    const char *from = static_cast<const char *>(data);
    while (bytes > 0) {
        const ssize_t n = ::pwrite(fd_, from, bytes, static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            fail(ErrorKind::file, "{}: byte {}: cannot be written: {}", name_, offset,
                 why(n < 0 ? errno : EIO, path_.parent_path(), bytes_));
        from += n;
        bytes -= static_cast<size_t>(n);
        offset += static_cast<uint64_t>(n);
    }
}

void Output::commit() {
    // Only now are errors of delayed writes known, and only then may the old file of that name go.
    if (::fsync(fd_) != 0 && errno != EINVAL)
        fail(ErrorKind::file, "{}: cannot be written: {}", name_, why(errno, path_.parent_path(), bytes_));
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
        fail(ErrorKind::file, "{}: cannot be given its name: {}", name_, why(errno, path_.parent_path(), bytes_));
    ::close(fd_);
    fd_ = -1;
}

namespace {

struct Piece {
    size_t tensor;
    uint64_t offset;  // in the tensor
    uint64_t bytes;
};

// The size of the piece that begins at `offset` of a tensor.
uint64_t piece_bytes(const Extent &t, uint64_t offset) {
    const uint64_t row = t.row_elements / t.format->block * t.format->bytes;
    if (row <= kPieceBytes) return std::min(kPieceBytes / row * row, t.bytes - offset);
    const uint64_t unit = uint64_t{std::max(256u, t.format->block)} / t.format->block * t.format->bytes;  // 256 weights
    return std::min(kPieceBytes / unit * unit, row - offset % row);  // no piece crosses the end of a long row
}

// The work that threads share. Everything here is used under `mutex`.
struct Queue {
    std::mutex mutex;
    size_t tensor = 0;  // the next piece
    uint64_t offset = 0;
    uint64_t done = 0, total = 0;  // bytes
    std::exception_ptr error;      // the first one; no piece is handed out after it

    std::optional<Piece> next(const std::vector<Extent> &tensors) {
        if (error || tensor == tensors.size()) return std::nullopt;
        const Piece p{tensor, offset, piece_bytes(tensors[tensor], offset)};
        offset += p.bytes;
        if (offset == tensors[tensor].bytes) tensor++, offset = 0;
        return p;
    }
};

}  // namespace

void write_tensors(Output &out, const std::vector<Extent> &tensors, const Writer::Fill &fill, unsigned threads,
                   const std::function<void(uint64_t done, uint64_t total)> &progress) {
    Queue queue;
    for (const Extent &t : tensors) queue.total += t.bytes;

    auto work = [&] {
        try {
            std::vector<std::byte> buffer;
            for (;;) {
                std::unique_lock lock(queue.mutex);
                const std::optional<Piece> p = queue.next(tensors);
                lock.unlock();
                if (!p) return;
                if (buffer.size() < p->bytes) buffer.resize(p->bytes);
                fill(p->tensor, p->offset, std::span(buffer).first(p->bytes));
                out.put(buffer.data(), p->bytes, tensors[p->tensor].at + p->offset);
                lock.lock();
                queue.done += p->bytes;
                if (progress && !queue.error) progress(queue.done, queue.total);
            }
        } catch (...) {
            const std::lock_guard lock(queue.mutex);
            if (!queue.error) queue.error = std::current_exception();
        }
    };
    const uint64_t useful = std::max<uint64_t>(queue.total / kPieceBytes, 1);
    {
        std::vector<std::jthread> pool;
        try {
            for (uint64_t i = 1; i < std::min<uint64_t>(threads, useful); i++) pool.emplace_back(work);
        } catch (const std::system_error &) {
            // No more threads are to be had: fewer do the same work.
        }
        work();
    }
    if (queue.error) std::rethrow_exception(queue.error);
}

}  // namespace ridge::gguf
