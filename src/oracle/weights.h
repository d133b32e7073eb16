// The tensors of a file as matrices, decoded when first asked for, and products with them.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "gguf/gguf.h"
#include "oracle/ops.h"

namespace ridge::oracle {

// A matrix of `rows` rows (of all experts, one after the other) and `columns` columns. A vector is one row.
struct Matrix {
    size_t rows = 0, columns = 0, rows_per_expert = 0;
    std::vector<float> values;
    const float *row(size_t r) const { return values.data() + r * columns; }
};

// What a matrix must be.
struct Dims {
    size_t k = 0;  // columns
    size_t n = 0;  // rows, of each expert
};

// Tensors by name. One that is not there or does not fit is Error{file} with its name.
class Weights {
  public:
    explicit Weights(const gguf::File &file) : file_(file) {}  // must outlive this

    bool has(const std::string &name) const { return file_.find_tensor(name) != nullptr; }
    const Matrix &matrix(const std::string &name);
    Reals vector(const std::string &name, size_t n);

    // <name>.weight x, plus <name>.bias where the file has it; of one expert where there are several.
    // x: (tokens, k). Result: (tokens, n).
    Reals linear(const std::string &name, Dims dims, RealSpan x, size_t expert = 0);

  private:
    const gguf::File &file_;
    std::unordered_map<std::string, Matrix> decoded_;
};

}  // namespace ridge::oracle
