// A synthetic model in a file that is gone when this is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace ridge {

class TemporaryModel {
  public:
    // As SynthOptions has them.
    TemporaryModel(std::string_view like, std::string_view quant, bool pure, uint64_t seed);
    ~TemporaryModel();
    TemporaryModel(const TemporaryModel &) = delete;
    TemporaryModel &operator=(const TemporaryModel &) = delete;
    const std::filesystem::path &path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace ridge
