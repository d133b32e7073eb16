#include "oracle/weights.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/error.h"
#include "oracle/decode.h"

namespace ridge::oracle {
namespace {

// Calls work(i) for i = 0 .. n-1, split over the machine's threads where `steps` of work in each are worth one.
// Results do not depend on how.
template <class Work>
void for_each_row(size_t n, size_t steps, const Work &work) {
    constexpr size_t kWorthAThread = 1 << 21;
    const size_t most = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16);
    const size_t threads = std::clamp<size_t>(n * steps / kWorthAThread, 1, most);
    const size_t share = (n + threads - 1) / threads;
    auto run = [&](size_t first) {
        for (size_t i = first; i < std::min(n, first + share); i++) work(i);
    };
    std::vector<std::jthread> others;
    for (size_t first = share; first < n; first += share) others.emplace_back(run, first);
    run(0);
}

// x: (tokens, k) times the rows [first, first + n) of m. Result: (tokens, n).
Reals times(const Matrix &m, size_t first, size_t n, RealSpan x) {
    const size_t k = m.columns, tokens = x.size() / k;
    Reals turned(x.size());  // (k, tokens): the tokens of one k side by side
    for (size_t t = 0; t < tokens; t++)
        for (size_t j = 0; j < k; j++) turned[j * tokens + t] = x[t * k + j];
    Reals out(tokens * n);
    for_each_row(n, k * tokens, [&](size_t i) {
        const float *w = m.row(first + i);
        Reals sum(tokens, 0.0);
        for (size_t j = 0; j < k; j++) {
            const double wj = static_cast<double>(w[j]);
            for (size_t t = 0; t < tokens; t++) sum[t] += wj * turned[j * tokens + t];
        }
        for (size_t t = 0; t < tokens; t++) out[t * n + i] = sum[t];
    });
    return out;
}

}  // namespace

const Matrix &Weights::matrix(const std::string &name) {
    if (const auto known = decoded_.find(name); known != decoded_.end()) return known->second;
    const gguf::Tensor *found = file_.find_tensor(name);
    if (!found) fail(ErrorKind::file, "the oracle finds no tensor {}", name);
    const gguf::Tensor &t = *found;
    Matrix m;
    m.columns = t.shape[0];
    m.rows_per_expert = t.shape[1];
    m.rows = t.shape[1] * t.shape[2];
    const size_t weights = block_weights(t.type), bytes = block_bytes(t.type);
    if (m.columns == 0 || m.columns % weights != 0 || m.rows * (m.columns / weights) * bytes != t.bytes)
        fail(ErrorKind::file, "the oracle cannot read tensor {}: {} bytes for {} rows of {}", name, t.bytes, m.rows,
             m.columns);
    m.values.resize(m.rows * m.columns);
    const auto *data = reinterpret_cast<const unsigned char *>(t.data);
    const size_t row_bytes = m.columns / weights * bytes;
    for_each_row(m.rows, 64 * m.columns, [&](size_t r) {
        const Reals row = decode(t.type, data + r * row_bytes, m.columns);
        std::transform(row.begin(), row.end(), m.values.begin() + static_cast<std::ptrdiff_t>(r * m.columns),
                       [](double x) { return static_cast<float>(x); });
    });
    return decoded_.emplace(name, std::move(m)).first->second;
}

Reals Weights::vector(const std::string &name, size_t n) {
    const Matrix &m = matrix(name);
    if (m.values.size() != n)
        fail(ErrorKind::file, "the oracle needs {} elements in tensor {}, not {}", n, name, m.values.size());
    return Reals(m.values.begin(), m.values.end());
}

Reals Weights::linear(const std::string &name, Dims dims, RealSpan x, size_t expert) {
    const Matrix &m = matrix(name + ".weight");
    const size_t n = dims.n, first = expert * n;
    if (m.columns != dims.k || m.rows_per_expert != n || first + n > m.rows)
        fail(ErrorKind::file,
             "the oracle needs {} rows of {} for expert {} in tensor {}.weight; it has {} of {} in all", n, dims.k,
             expert, name, m.rows, m.columns);
    RIDGE_ASSERT(x.size() % dims.k == 0);
    Reals out = times(m, first, n, x);
    if (!has(name + ".bias")) return out;
    const Matrix &bias = matrix(name + ".bias");  // (experts, n)
    if (bias.columns != n || expert >= bias.rows)
        fail(ErrorKind::file, "the oracle needs {} elements for expert {} in tensor {}.bias; it has {} rows of {}", n,
             expert, name, bias.rows, bias.columns);
    for (size_t i = 0; i < out.size(); i++) out[i] += static_cast<double>(bias.row(expert)[i % n]);
    return out;
}

}  // namespace ridge::oracle
