// A whole file mapped for reading.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace ridge::gguf {

class Mapping {
  public:
    // Throws Error{file} for what cannot be opened, is no regular file, is empty or cannot be mapped.
    static Mapping open(const std::filesystem::path &path);

    Mapping(Mapping &&other) noexcept;
    Mapping &operator=(Mapping &&other) noexcept;
    ~Mapping();

    std::span<const std::byte> bytes() const { return bytes_; }
    const std::filesystem::path &path() const { return path_; }
    const std::string &name() const { return name_; }  // the path as messages show it

    // Asks for pages of 2 MiB. Where the file system has them (ext4 since Linux 6.16, XFS, Btrfs), what `load` then
    // reads from the disk is read and mapped in such pieces, whatever the disk's readahead is set to: fewer requests,
    // fewer TLB misses. What is in memory already stays as it is.
    void prefer_huge_pages() const;

    // Brings the bytes [from, to) into memory and returns when they are there. Throws Error{file} where the disk fails.
    // From several threads it keeps several requests at the disk.
    void load(size_t from, size_t to) const;

    // Puts a copy of the bytes, in memory of this process's own and in pages of 2 MiB, at the same addresses;
    // neighbours on the same huge pages are copied along. Any thread may read meanwhile. Elsewhere than on Linux this
    // is `load`. Throws Error{file} where the disk fails, Error{limit} where there is no memory.
    void copy(size_t from, size_t to) const;

  private:
    Mapping() = default;
    [[noreturn]] void fail_read(size_t from, size_t to) const;
    int fd_ = -1;
    std::span<const std::byte> bytes_;
    std::filesystem::path path_;
    std::string name_;
};

}  // namespace ridge::gguf
