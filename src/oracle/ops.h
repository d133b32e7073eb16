// The operations of a transformer in double: naive loops that say what each result is, for the gates of kernels and for
// the whole-model forward pass of the oracle. Nothing is shared with src/op or a backend.
//
// Arrays are dense and row-major, shapes in comments with the slowest dimension first. Where a result carries a
// magnitude, that is the sum of the absolute values of the terms it was summed from: a kernel that adds the same terms
// in any order in precision u is off by at most about (number of terms) * u * magnitude.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ridge::oracle {

using Reals = std::vector<double>;
using RealSpan = std::span<const double>;

struct Sums {
    Reals sum;
    Reals magnitude;  // same shape
};

// Weight (row, column). With experts, expert e has the rows e*n .. e*n + n - 1.
using WeightAt = std::function<double(size_t row, size_t column)>;

struct ContractShape {
    size_t m = 0;        // rows of x
    size_t n = 0;        // rows of a weight matrix
    size_t k = 0;        // their length
    size_t experts = 1;  // weight matrices
    size_t chosen = 1;   // experts per row of x
};

// y[r, c, o] = sum over j of w[ids[r, c]*n + o, j] * x[r, j]
// x: (m, k). ids: (m, chosen), or empty: all zero. Result: (m, chosen, n).
Sums contract(const ContractShape &shape, const WeightAt &w, RealSpan x, std::span<const int32_t> ids = {});
// The weights as a matrix, (experts * n, k).
Sums contract(const ContractShape &shape, RealSpan w, RealSpan x, std::span<const int32_t> ids = {});

// x[r, j] / sqrt(mean over j of x[r, j]^2 + eps) * weight[j].   x: (rows, n), weight: (n). Result: (rows, n).
Reals rms_norm(RealSpan x, RealSpan weight, double eps);

enum class RopePairs {
    halves,    // "neox": element i turns with i + rotated/2
    adjacent,  // "norm": element 2i turns with 2i + 1
};

struct Rope {
    RopePairs pairs = RopePairs::halves;
    RealSpan frequencies = {};  // of each pair, radians per position; elements of a head behind the last pair pass
    double magnitude = 1;       // of what has turned
};

// x: (tokens, heads, head_dim), positions: (tokens). Result: as x.
Reals rope(const Rope &how, RealSpan x, size_t heads, size_t head_dim, std::span<const int32_t> positions);

// base^(-2i / rotated) for pair i. Precondition: rotated is even. Result: (rotated / 2).
Reals rope_frequencies(size_t rotated, double base);

// YaRN stretches a context `factor` times: pairs that turn fast stay as they are, slow ones turn `factor` times slower,
// and those between change over gradually:
//   frequency[i] * (1 - r + r / factor),  r = (i - low) / (high - low) held to 0 .. 1
// low and high are where pairs turn beta_fast and beta_slow times in the original context, counted in pairs:
//   rotated * ln(original_context / (2 pi beta)) / (2 ln base),  low at least 0, high at most rotated - 1
struct Yarn {
    double base = 10000;
    double factor = 1;
    double original_context = 0;
    double beta_fast = 32, beta_slow = 1;
    bool whole_pairs = true;  // low is rounded down, high up
};
Reals yarn_frequencies(const Yarn &how, RealSpan frequencies);
double yarn_magnitude(double factor);                               // 1 + 0.1 ln(factor); 1 up to factor 1
double longrope_magnitude(double factor, double original_context);  // sqrt(1 + ln(factor) / ln(original_context)); same

struct AttentionShape {
    size_t heads = 0;     // of q
    size_t kv_heads = 0;  // heads h*heads/kv_heads .. (h+1)*heads/kv_heads - 1 of q read head h of k and v
    size_t k_dim = 0;     // of a head of q and k
    size_t v_dim = 0;     // of a head of v
    double scale = 0;     // of q.k; 0 means 1/sqrt(k_dim)
    size_t window = 0;    // cells seen, counted back from the query's own position; 0 means all
    double softcap = 0;   // a score s becomes softcap * tanh(s / softcap); 0 means it stays
    RealSpan sinks = {};  // (heads), or empty: a score more in the softmax of each head, that has no value
};

struct Attention {
    Reals sum;              // (tokens, heads, v_dim)
    Reals magnitude;        // same shape: sum of p * |v|
    Reals score_magnitude;  // (tokens, heads): largest scale * sum |q * k| over visible keys. An error of e in a score
                            // changes a probability by a factor of at most exp(2 e), and softcap makes none larger
};

// Softmax attention of `tokens` queries over `history` cells. Cell j is visible to query t where
// 0 <= k_positions[j] <= q_positions[t], and with a window only where k_positions[j] > q_positions[t] - window; a cell
// at a negative position is empty. A query that sees nothing gives zeros.
// q: (tokens, heads, k_dim), k: (history, kv_heads, k_dim), v: (history, kv_heads, v_dim).
Attention attention(const AttentionShape &shape, RealSpan q, RealSpan k, RealSpan v,
                    std::span<const int32_t> q_positions, std::span<const int32_t> k_positions);

double sigmoid(double x);                    // 1 / (1 + exp(-x))
double silu(double x);                       // x * sigmoid(x)
double gelu(double x);                       // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
double softcap(double x, double cap);        // cap * tanh(x / cap)
Reals silu_mul(RealSpan gate, RealSpan up);  // silu(gate) * up
Reals gelu_mul(RealSpan gate, RealSpan up);  // gelu(gate) * up
// g * sigmoid(1.702 g) * (u + 1), g = gate held to at most 7, u = up held to -7 .. 7: the unit of gpt-oss.
Reals clamped_mul(RealSpan gate, RealSpan up);
Reals add(RealSpan a, RealSpan b);

Reals softmax(RealSpan logits);
double log_sum_exp(RealSpan logits);
size_t argmax(RealSpan logits);  // the lowest index of the largest. Precondition: not empty
// The token of a row: of the top_k most likely, of equals the lower id, the fewest with a share top_p of their mass (1:
// all), of those the ones min_p times as likely as the first, then the one on which `uniform` falls when the
// probabilities at `temperature` are laid end to end. Temperature 0: the most likely. -1 where a logit is NaN or
// +infinity or all are -infinity.
struct Draw {
    size_t top_k = 1;
    double top_p = 1, min_p = 0, temperature = 1, uniform = 0;
};
struct Drawn {
    int32_t id = -1;
    // The least relative change of a sum or a probability that would give another token. A kernel may choose otherwise
    // only where it is tiny
    double margin = 0;
    double begin = 0, end = 1;  // the uniform numbers that give this token
};
Drawn draw(RealSpan logits, const Draw &how);
// sum over i of p_i log(p_i / q_i), p and q the softmax of the two rows of logits.
double kl_divergence(RealSpan p_logits, RealSpan q_logits);

struct Routes {
    std::vector<int32_t> ids;  // (tokens, top_k), most probable first; of equal ones the lower id
    Reals weights;             // (tokens, top_k)
    Reals margin;  // (tokens): gap between the probabilities of the last one taken and the best one left out,
                   // infinite where all are taken. A kernel may choose otherwise only where it is tiny
};

// Softmax over all experts, the top_k of them, and, with `normalise`, their weights divided by their sum. The latter is
// also the softmax over the logits of the chosen. logits: (tokens, experts).
Routes route(RealSpan logits, size_t experts, size_t top_k, bool normalise);

}  // namespace ridge::oracle
