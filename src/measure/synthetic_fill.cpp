// Random numbers are a function of (key, position): word i of a stream is mix(key + i * odd constant), SplitMix64's
// output function (Steele, Lea, Flood 2014). So a piece needs nothing from the pieces before it.
//
// Where the standard deviation of a format comes from: with uniform random bytes in all other fields,
//   sigma^2 = E[d^2] * E[(scale * code)^2], and E[d^2] = d0^2 * 13/12 for d spread evenly over d0/2 .. 3/2 d0.
// Uniform integers 0 .. n-1 have variance (n^2-1)/12; the moments of the IQ grids are those of their published tables.
#include "measure/synthetic_fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "core/error.h"

namespace ridge {
namespace {

uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t word(uint64_t key, uint64_t i) { return mixed(key + (i + 1) * 0x9e3779b97f4a7c15u); }

// Bytes offset .. of the stream.
void random_bytes(uint64_t key, uint64_t offset, std::span<std::byte> out) {
    size_t done = 0;
    uint64_t i = offset / 8;
    if (const size_t skip = offset % 8; skip != 0) {
        const uint64_t w = word(key, i++);
        done = std::min<size_t>(8 - skip, out.size());
        std::memcpy(out.data(), reinterpret_cast<const char *>(&w) + skip, done);
    }
    for (; done + 8 <= out.size(); done += 8, i++) {
        const uint64_t w = word(key, i);
        std::memcpy(out.data() + done, &w, 8);
    }
    if (done < out.size()) {
        const uint64_t w = word(key, i);
        std::memcpy(out.data() + done, &w, out.size() - done);
    }
}

// f16 nearest to x, ties to even. Precondition: |x| is below the largest f16.
uint16_t f16_bits(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x38800000u) {
        // Subnormal: the sum with 1/2, whose last bit is 2^-24 as theirs, rounds it.
        magnitude = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else {
        magnitude = (magnitude + 0xfffu + ((magnitude >> 13) & 1) - 0x38000000u) >> 13;
    }
    return static_cast<uint16_t>(magnitude | ((bits >> 16) & 0x8000u));
}

double f16_value(uint16_t h) {
    const int exponent = (h >> 10) & 31, mantissa = h & 1023;
    const double x = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
    return h & 0x8000 ? -x : x;
}

uint16_t bf16_bits(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Quantiles of the normal distribution: element i is at probability (i + 1/2) / 65536.
const std::vector<float> &normal_quantiles() {
    static const std::vector<float> table = [] {
        std::vector<float> t(65536);
        double z = 0;
        for (size_t i = 32768; i < 65536; i++) {
            const double tail = 1 - (static_cast<double>(i) + 0.5) / 65536;
            // Newton, from the quantile before: the upper tail is convex here, so steps never pass the root.
            for (int step = 0; step < 8; step++) {
                const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
                z += (std::erfc(z / std::numbers::sqrt2) / 2 - tail) / density;
            }
            t[i] = static_cast<float>(z);
            t[65535 - i] = static_cast<float>(-z);
        }
        return t;
    }();
    return table;
}

constexpr int kNoField = -1;

// How a block's scales are set.
struct Recipe {
    Format format;
    int d, m;            // byte offsets of the f16 fields
    double mean_square;  // of weights where d is 1 in all blocks and m centres them
    double m_over_d;     // m = m_over_d * d
    bool either_sign;    // codes are not centred: d is negative in half of the blocks
};

constexpr double uniform_variance(double n) { return (n * n - 1) / 12; }
constexpr double kHalfStep4 = uniform_variance(16) + 64;        // (s + 1/2)^2, s = 0 .. 15
constexpr double kHalfStep3 = uniform_variance(8) + 16;         // s = 0 .. 7
constexpr double kSigned6 = uniform_variance(64) + 0.25;        // (s - 32)^2, s = 0 .. 63
constexpr double kSigned8 = uniform_variance(256) + 0.25;       // an int8
constexpr double kScale6 = uniform_variance(64) + 31.5 * 31.5;  // s^2, s = 0 .. 63
constexpr double kScale4 = uniform_variance(16) + 7.5 * 7.5;    // s^2, s = 0 .. 15
constexpr double kLevels4 = 4548;                               // of IQ4_NL's sixteen levels
constexpr double kIq1 = 9735.0 / 16384 + 1.0 / 64;              // grid coordinate plus or minus an eighth
constexpr double kQ6K = kSigned8 * kSigned6;
constexpr double kIq4Xs = kSigned6 * kLevels4;

constexpr Recipe kRecipes[] = {
    {Format::Q4_0, 0, kNoField, uniform_variance(16) + 0.25, 0, true},
    {Format::Q4_1, 0, 2, uniform_variance(16), -7.5, false},
    {Format::Q5_0, 0, kNoField, uniform_variance(32) + 0.25, 0, true},
    {Format::Q5_1, 0, 2, uniform_variance(32), -15.5, false},
    {Format::Q8_0, 0, kNoField, kSigned8, 0, false},
    {Format::Q2_K, 80, 82, uniform_variance(4) * kScale4, 1.5, false},
    {Format::Q3_K, 108, kNoField, (uniform_variance(8) + 0.25) * kSigned6, 0, false},
    {Format::Q4_K, 0, 2, uniform_variance(16) * kScale6, 7.5, false},
    {Format::Q5_K, 0, 2, uniform_variance(32) * kScale6, 15.5, false},
    {Format::Q6_K, 208, kNoField, kQ6K, 0, false},
    {Format::IQ2_XXS, 0, kNoField, kHalfStep4 / 16 * (1094513.0 / 2048), 0, false},
    {Format::IQ2_XS, 0, kNoField, kHalfStep4 / 16 * (2402206.0 / 4096), 0, false},
    {Format::IQ2_S, 0, kNoField, kHalfStep4 / 16 * (4889327.0 / 8192), 0, false},
    {Format::IQ3_XXS, 0, kNoField, kHalfStep4 / 4 * (974480.0 / 1024), 0, false},
    {Format::IQ3_S, 0, kNoField, kHalfStep4 * 4 * (118112.0 / 2048), 0, false},
    {Format::IQ1_S, 0, kNoField, kHalfStep3 * 4 * kIq1, 0, false},
    {Format::IQ1_M, kNoField, kNoField, kHalfStep3 * 4 * kIq1, 0, false},
    {Format::IQ4_NL, 0, kNoField, kLevels4, 0, true},
    {Format::IQ4_XS, 0, kNoField, kIq4Xs, 0, false},
    {Format::TQ1_0, 52, kNoField, 2.0 / 3, 0, false},
    {Format::TQ2_0, 64, kNoField, 0.5, 0, false},
    // Doubled 4-bit floats 0 1 2 3 4 6 8 12; the exponent byte is set apart.
    {Format::MXFP4, kNoField, kNoField, 274.0 / 8, 0, false},
};

const Recipe &recipe(Format f) {
    for (const Recipe &r : kRecipes)
        if (r.format == f) return r;
    RIDGE_ASSERT(!"every block format has a recipe");
    return kRecipes[0];
}

uint16_t load16(const std::byte *p) {
    uint16_t v;
    std::memcpy(&v, p, 2);
    return v;
}
void store16(std::byte *p, uint16_t v) { std::memcpy(p, &v, 2); }

std::byte twice_low_nibble(std::byte b) { return (b & std::byte{15}) | (b << 4); }

// Minima as large as the scales, group by group: then d*s*code - dmin*s is centred in every group.
void equal_minima(Format f, std::byte *b) {
    if (f == Format::Q2_K) {
        for (int g = 0; g < 16; g++) b[g] = twice_low_nibble(b[g]);
        return;
    }
    std::byte *s = b + 4;  // 12 bytes: low scales, low minima, and nibbles of both for the upper four groups
    std::memcpy(s + 4, s, 4);
    for (int g = 8; g < 12; g++) s[g] = twice_low_nibble(s[g]);
}

// The third scale of TQ2_0's 0, 1, 2 is no ternary weight: pairs of ones become 1, the code of zero.
void only_ternary(std::byte *b) {
    for (int i = 0; i < 64; i += 8) {
        uint64_t w;
        std::memcpy(&w, b + i, 8);
        const uint64_t both = w & (w >> 1) & 0x5555555555555555u;
        w &= ~(both << 1);
        std::memcpy(b + i, &w, 8);
    }
}

}  // namespace

uint64_t stream_key(uint64_t seed, std::string_view tensor) {
    uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
    for (char c : tensor) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return mixed(h + mixed(seed));
}

Filler::Filler(Format format, double mean, double sigma, uint64_t key)
    : format_(format), mean_(mean), sigma_(sigma), key_(key) {
    if (info(format).is_float()) {
        normal_quantiles();
        return;
    }
    RIDGE_ASSERT(mean == 0);
    const Recipe &r = recipe(format);
    if (format == Format::MXFP4) {
        // Scales are powers of two. A share p of the blocks has 2^(e+1), the others 2^e, so that the mean square fits.
        const double scale = sigma / std::sqrt(r.mean_square);
        const int e = std::ilogb(scale);
        const double ratio = std::ldexp(scale, -e);  // 1 .. 2
        const auto larger = static_cast<size_t>(std::lround(256 * (ratio * ratio - 1) / 3));
        for (size_t i = 0; i < d_.size(); i++) d_[i] = static_cast<uint16_t>(e + 128 + (i < larger ? 1 : 0));
        return;
    }
    const double d0 = sigma / std::sqrt(r.mean_square * 13 / 12);
    for (size_t i = 0; i < d_.size(); i++) {
        d_[i] = f16_bits(static_cast<float>(d0 * (0.5 + (static_cast<double>(i) + 0.5) / 256)));
        m_[i] = f16_bits(static_cast<float>(r.m_over_d * f16_value(d_[i])));
    }
}

void Filler::blocks(std::span<std::byte> out) const {
    const Recipe &r = recipe(format_);
    const size_t bytes = info(format_).bytes;
    for (std::byte *b = out.data(); b < out.data() + out.size(); b += bytes) {
        if (format_ == Format::MXFP4) {
            b[0] = static_cast<std::byte>(d_[static_cast<size_t>(b[0])]);
        } else if (format_ == Format::IQ1_M) {
            // d's four nibbles are the top ones of the last four words.
            const uint16_t d = d_[static_cast<size_t>(b[49])];
            for (int i = 0; i < 4; i++) {
                std::byte &top = b[49 + 2 * i];
                top = (top & std::byte{15}) | static_cast<std::byte>(((d >> (4 * i)) & 15) << 4);
            }
        } else {
            const uint16_t random = load16(b + r.d);
            const uint16_t sign = r.either_sign ? random & 0x8000 : 0;
            store16(b + r.d, static_cast<uint16_t>(d_[random & 255] | sign));
            if (r.m != kNoField) store16(b + r.m, m_[random & 255]);
        }
        if (format_ == Format::Q2_K || format_ == Format::Q4_K || format_ == Format::Q5_K) equal_minima(format_, b);
        if (format_ == Format::TQ2_0) only_ternary(b);
    }
}

void Filler::operator()(uint64_t offset, std::span<std::byte> out) const {
    const FormatInfo &f = info(format_);
    RIDGE_ASSERT(offset % f.bytes == 0 && out.size() % f.bytes == 0);
    random_bytes(key_, offset, out);
    if (!f.is_float()) return blocks(out);

    const std::vector<float> &z = normal_quantiles();
    if (format_ == Format::F32) {
        for (size_t i = 0; i < out.size(); i += 4) {
            // The upper half picks a quantile, the lower half moves towards the next one: all mantissa bits occur.
            const size_t at = load16(out.data() + i + 2);
            const double part = (load16(out.data() + i) + 0.5) / 65536;
            const double here = static_cast<double>(z[at]),
                         next = static_cast<double>(z[std::min<size_t>(at + 1, 65535)]);
            const auto value = static_cast<float>(mean_ + sigma_ * (here + part * (next - here)));
            std::memcpy(out.data() + i, &value, 4);
        }
        return;
    }
    for (size_t i = 0; i < out.size(); i += 2) {
        const auto x = static_cast<float>(mean_ + sigma_ * static_cast<double>(z[load16(out.data() + i)]));
        store16(out.data() + i, format_ == Format::F16 ? f16_bits(x) : bf16_bits(x));
    }
}

}  // namespace ridge
