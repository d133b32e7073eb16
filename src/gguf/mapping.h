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

    // Brings the bytes [from, to) into memory and returns when they are there. Throws Error{file} where the disk fails.
    void load(size_t from, size_t to) const;

  private:
    Mapping() = default;
    std::span<const std::byte> bytes_;
    std::filesystem::path path_;
    std::string name_;
};

}  // namespace ridge::gguf
