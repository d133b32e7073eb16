// The file being written: a temporary name beside the final one until it is complete, and the pieces that fill it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace ridge::gguf {

// A file of known size, all zeros until written. Removed again unless commit() returned.
class Output {
  public:
    // Throws Error{file} where there is no room for `bytes` or the folder cannot be written.
    Output(const std::filesystem::path &path, uint64_t bytes);
    ~Output();
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

    // From any thread; ranges of different calls do not overlap.
    void put(const void *data, size_t bytes, uint64_t offset);
    // Waits until the bytes are on the disk and gives the file its name.
    void commit();

  private:
    void create();
    void reserve();
    std::filesystem::path path_, temporary_;
    std::string name_;  // as messages show it
    uint64_t bytes_;
    int fd_ = -1;
};

// Where a tensor lies in the file, and what its pieces are made of.
struct Extent {
    const FormatInfo *format;
    uint64_t row_elements;
    uint64_t bytes;
    uint64_t at;  // in the file
};

// Fills and writes all tensors with `threads` threads, each taking the next piece: whole rows, or where a row is too
// large for one piece, a part of one row that starts at a multiple of 256 weights. Memory: one piece per thread.
void write_tensors(Output &out, const std::vector<Extent> &tensors, const Writer::Fill &fill, unsigned threads,
                   const std::function<void(uint64_t done, uint64_t total)> &progress);

}  // namespace ridge::gguf
