#include "measure/temporary_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include "measure/synthetic.h"

namespace ridge {

TemporaryModel::TemporaryModel(std::string_view like, std::string_view quant, bool pure, uint64_t seed)
    : path_(std::filesystem::temp_directory_path() /
            fmt::format("ridge-gate-{}-{}-{}-{}.gguf", getpid(), like, quant, seed)) {
    SynthOptions o;
    o.like = std::string(like), o.quant = std::string(quant), o.pure = pure, o.seed = seed, o.force = true;
    write_synthetic(path_, o);
}

TemporaryModel::~TemporaryModel() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
}

}  // namespace ridge
