#include "gate/wrong_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "measure/gate_data.h"

namespace ridge::test {
namespace {

void quantize_half_up(const LaunchView &view) {
    const auto &op = std::get<Quantize>(view.op);
    const Q8View q = view.q8(op.out);
    const float *x = view.ptr<const float>(op.x);
    for (size_t b = 0; b < view.rows(op.x) * view.cols(op.x) / 32; b++, x += 32) {
        float most = 0;
        for (int i = 0; i < 32; i++) most = std::max(most, std::fabs(x[i]));
        const float scale = q.scale[b] = most / 127;
        q.sums[2 * b] = q.sums[2 * b + 1] = 0;
        for (int i = 0; i < 32; i++) {
            const float v = scale > 0 ? std::clamp(x[i] / scale, -127.0f, 127.0f) : 0;
            const auto code = static_cast<int8_t>(std::floor(v + 0.5f));
            q.codes[32 * b + static_cast<size_t>(i)] = code;
            q.sums[2 * b + static_cast<size_t>(i / 16)] =
                static_cast<int16_t>(q.sums[2 * b + static_cast<size_t>(i / 16)] + code);
        }
    }
}
void softmax_without_maximum(const LaunchView &view) {
    const auto &op = std::get<Softmax>(view.op);
    const size_t n = view.cols(op.x);
    for (size_t r = 0; r < view.rows(op.x); r++) {
        const float *x = view.ptr<const float>(op.x) + r * n;
        float *out = view.ptr<float>(op.out) + r * n, sum = 0;
        for (size_t j = 0; j < n; j++) sum += out[j] = std::exp(x[j]);
        for (size_t j = 0; j < n; j++) out[j] /= sum;
    }
}
void top_k_of_equals_the_last(const LaunchView &view) {
    const auto &op = std::get<TopK>(view.op);
    const size_t n = view.cols(op.x), k = view.cols(op.ids);
    for (size_t r = 0; r < view.rows(op.x); r++) {
        const float *x = view.ptr<const float>(op.x) + r * n;
        std::vector<int32_t> order(n);
        for (size_t j = 0; j < n; j++) order[j] = static_cast<int32_t>(n - 1 - j);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
        for (size_t s = 0; s < k; s++) {
            view.ptr<int32_t>(op.ids)[r * k + s] = order[s];
            view.ptr<float>(op.weights)[r * k + s] = x[order[s]];
        }
    }
}
// Samples rightly but for one part, in double by the standard library; equal sums fall either way, and the gate has
// none.
enum class SampleMistake { temperature_first, min_p_first, min_p_of_mass, ties_high, no_bad, largest, exp_f32 };
template <SampleMistake mistake>
void sample_wrongly(const LaunchView &view) {
    const auto &op = std::get<Sample>(view.op);
    const uint32_t n = view.cols(op.x);
    for (uint32_t r = 0; r < view.rows(op.x); r++) {
        const float *x = view.ptr<const float>(op.x) + size_t{r} * n;
        const Draw d = view.step.draw(r);
        int32_t &out = view.ptr<int32_t>(op.ids)[r] = -1;
        std::vector<int32_t> order;
        bool bad = false;
        for (uint32_t j = 0; j < n; j++) {
            bad |= !(x[j] < INFINITY);
            if (x[j] > -INFINITY) order.push_back(static_cast<int32_t>(j));
        }
        if (order.empty() || (bad && mistake != SampleMistake::no_bad)) continue;
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            return mistake == SampleMistake::ties_high && x[a] == x[b] ? a > b : x[a] > x[b];
        });
        out = order[0];
        if (d.temperature == 0 || mistake == SampleMistake::largest) continue;
        order.resize(std::min<size_t>(order.size(), d.top_k));
        const auto weigh = [&](double temperature) {
            std::vector<double> w;
            for (const int32_t id : order) w.push_back(std::exp((double{x[id]} - double{x[order[0]]}) / temperature));
            if (mistake == SampleMistake::exp_f32)
                for (double &v : w) v = static_cast<double>(static_cast<float>(v));
            return w;
        };
        const auto min_p = [&] {
            const std::vector<double> w = weigh(1);
            const double by = mistake == SampleMistake::min_p_of_mass ? std::accumulate(w.begin(), w.end(), 0.0) : 1;
            size_t left = 1;
            while (left < w.size() && w[left] >= double{d.min_p} * by) left++;
            order.resize(left);
        };
        if (mistake == SampleMistake::min_p_first) min_p();
        if (d.top_p < 1) {
            const std::vector<double> w =
                weigh(mistake == SampleMistake::temperature_first ? double{d.temperature} : 1);
            const double all = std::accumulate(w.begin(), w.end(), 0.0);
            size_t left = 0;
            for (double mass = 0; left < w.size() && (left == 0 || mass < double{d.top_p} * all);) mass += w[left++];
            order.resize(left);
        }
        min_p();
        const std::vector<double> w = weigh(double{d.temperature});
        double at = d.uniform * std::accumulate(w.begin(), w.end(), 0.0);
        size_t place = 0;
        for (; place + 1 < w.size() && at >= w[place]; place++) at -= w[place];
        out = order[place];
    }
}
void normalize_all_but_one(const LaunchView &view) {
    const auto &op = std::get<Normalize>(view.op);
    const size_t n = view.cols(op.x);
    for (size_t r = 0; r < view.rows(op.x); r++) {
        const float *x = view.ptr<const float>(op.x) + r * n;
        float sum = 0;
        for (size_t j = 0; j + 1 < n; j++) sum += x[j];
        for (size_t j = 0; j < n; j++) view.ptr<float>(op.out)[r * n + j] = x[j] / sum;
    }
}
void add_beyond_the_end(const LaunchView &view) {
    const auto &op = std::get<Add>(view.op);
    const size_t n = view.cols(op.a), used = view.rows(op.a) * n;
    const size_t all = std::min<size_t>(used + n, size_t{view.bindings.limits.tokens} * n);
    for (size_t i = 0; i < all; i++)
        view.ptr<float>(op.out)[i] = i < used ? view.ptr<float>(op.a)[i] + view.ptr<float>(op.b)[i] : 0;
}
void add_in_place(const LaunchView &view) {
    const auto &op = std::get<Add>(view.op);
    for (size_t i = 0; i < view.rows(op.a) * view.cols(op.a); i++)
        view.ptr<float>(op.out)[i] = view.ptr<float>(op.a)[i] += view.ptr<float>(op.b)[i];
}
void write_nothing(const LaunchView &) {}

// out = f(a, b, scale) on every element.
template <class F>
void each_sum(const LaunchView &view, F &&f) {
    const auto &op = std::get<Add>(view.op);
    const float *a = view.ptr<float>(op.a), *b = view.ptr<float>(op.b);
    float *out = view.ptr<float>(op.out);
    for (size_t i = 0; i < view.rows(op.a) * view.cols(op.a); i++) out[i] = f(a[i], b[i], op.scale);
}
void add_scales_the_sum(const LaunchView &view) {
    each_sum(view, [](float a, float b, float scale) { return (a + b) * scale; });
}
void add_rounds_twice(const LaunchView &view) {
    each_sum(view, [](float a, float b, float scale) {
        const volatile float product = b * scale;
        return a + product;
    });
}

// ---- Units: computed in double, all of them rightly but for the one with the mistake.

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
constexpr double kRoot = 0.7978845608028654;  // sqrt(2 / pi)
struct UnitMistake {
    const char *name;
    GluKind kind;
    double (*wrong)(double gate, double up);
};
const UnitMistake kUnitMistakes[] = {
    {"takes the error function in gelu", GluKind::gelu,
     [](double g, double u) { return g / 2 * (1 + std::erf(g / std::sqrt(2.0))) * u; }},
    {"takes the sigmoid form of gelu", GluKind::gelu, [](double g, double u) { return g * sigmoid(1.702 * g) * u; }},
    {"forgets the cube in gelu", GluKind::gelu,
     [](double g, double u) { return g / 2 * (1 + std::tanh(kRoot * g)) * u; }},
    {"cancels in gelu", GluKind::gelu,
     [](double g, double u) {
         const float y = static_cast<float>(kRoot * (g + 0.044715 * g * g * g));
         return static_cast<double>(1.0f + std::tanh(y)) * g / 2 * u;
     }},
    {"forgets the limit of gate", GluKind::clamped,
     [](double g, double u) { return g * sigmoid(1.702 * g) * (std::clamp(u, -7.0, 7.0) + 1); }},
    {"limits gate from below", GluKind::clamped,
     [](double g, double u) {
         const double held = std::clamp(g, -7.0, 7.0);
         return held * sigmoid(1.702 * held) * (std::clamp(u, -7.0, 7.0) + 1);
     }},
    {"forgets the limits of up", GluKind::clamped,
     [](double g, double u) { return std::min(g, 7.0) * sigmoid(1.702 * std::min(g, 7.0)) * (u + 1); }},
    {"forgets the lower limit of up", GluKind::clamped,
     [](double g, double u) { return std::min(g, 7.0) * sigmoid(1.702 * std::min(g, 7.0)) * (std::min(u, 7.0) + 1); }},
    {"adds no 1 to up", GluKind::clamped,
     [](double g, double u) {
         return std::min(g, 7.0) * sigmoid(1.702 * std::min(g, 7.0)) * std::clamp(u, -7.0, 7.0);
     }},
    {"adds 1 before it limits up", GluKind::clamped,
     [](double g, double u) {
         return std::min(g, 7.0) * sigmoid(1.702 * std::min(g, 7.0)) * std::clamp(u + 1, -7.0, 7.0);
     }},
    {"forgets 1.702", GluKind::clamped,
     [](double g, double u) { return std::min(g, 7.0) * sigmoid(std::min(g, 7.0)) * (std::clamp(u, -7.0, 7.0) + 1); }},
};
double right_unit(GluKind kind, double g, double u) {
    if (kind == GluKind::silu) return g * sigmoid(g) * u;
    if (kind == GluKind::gelu) return g * sigmoid(2 * kRoot * (g + 0.044715 * g * g * g)) * u;
    const double held = std::min(g, 7.0);
    return held * sigmoid(1.702 * held) * (std::clamp(u, -7.0, 7.0) + 1);
}
template <size_t mistake>
void wrong_unit(const LaunchView &view) {
    const auto &op = std::get<Glu>(view.op);
    const float *gate = view.ptr<float>(op.gate), *up = view.ptr<float>(op.up);
    float *out = view.ptr<float>(op.out);
    for (size_t i = 0; i < view.rows(op.out) * view.cols(op.out); i++) {
        const double g = static_cast<double>(gate[i]), u = static_cast<double>(up[i]);
        const UnitMistake &m = kUnitMistakes[mistake];
        out[i] = static_cast<float>(op.kind == m.kind ? m.wrong(g, u) : right_unit(op.kind, g, u));
    }
}

// ---- scale and row_gate

template <class F>
void each_scaled(const LaunchView &view, F &&f) {
    const auto &op = std::get<Scale>(view.op);
    for (size_t i = 0; i < view.rows(op.x) * view.cols(op.x); i++) {
        const double x = static_cast<double>(view.ptr<float>(op.x)[i]);
        view.ptr<float>(op.out)[i] =
            static_cast<float>(f(x, static_cast<double>(op.scale), static_cast<double>(op.softcap)));
    }
}
void scale_after_the_cap(const LaunchView &view) {
    each_scaled(view, [](double x, double scale, double cap) {
        return cap > 0 ? cap * std::tanh(x / cap) * scale : x * scale;
    });
}
void scale_holds_hard(const LaunchView &view) {
    each_scaled(view, [](double x, double scale, double cap) {
        return cap > 0 ? std::clamp(x * scale, -cap, cap) : x * scale;
    });
}
void scale_divides(const LaunchView &view) {
    each_scaled(view, [](double x, double scale, double cap) {
        return cap > 0 ? cap * std::tanh(x / scale / cap) : x / scale;
    });
}
void scale_overflows(const LaunchView &view) {
    each_scaled(view, [](double x, double scale, double cap) {
        if (cap == 0) return x * scale;
        const double e = std::exp(2 * x * scale / cap);
        return cap * (e - 1) / (e + 1);
    });
}
template <class F>
void each_gated(const LaunchView &view, F &&f) {
    const auto &op = std::get<RowGate>(view.op);
    const size_t n = view.cols(op.x);
    for (size_t i = 0; i < view.rows(op.x) * n; i++)
        view.ptr<float>(op.out)[i] = static_cast<float>(static_cast<double>(view.ptr<float>(op.x)[i]) *
                                                        f(static_cast<double>(view.ptr<float>(op.gate)[i / n])));
}
void row_gate_without_sigmoid(const LaunchView &view) {
    each_gated(view, [](double gate) { return gate; });
}
void row_gate_turned_round(const LaunchView &view) {
    each_gated(view, [](double gate) { return sigmoid(-gate); });
}
void row_gate_with_silu(const LaunchView &view) {
    each_gated(view, [](double gate) { return gate * sigmoid(gate); });
}

// ---- rope_table

// The magnitude at each position is size(op, position).
template <class F>
void each_angle(const LaunchView &view, F &&size) {
    const auto &op = std::get<RopeTable>(view.op);
    float *out = view.ptr<float>(op.out);
    for (size_t i = 0; i < view.step.tokens(); i++) {
        const double p = view.step.position()[i], magnitude = size(op, p);
        for (const double f : op.frequency) {
            *out++ = static_cast<float>(std::cos(p * f) * magnitude);
            *out++ = static_cast<float>(std::sin(p * f) * magnitude);
        }
    }
}
void temperature_without_steps(const LaunchView &view) {
    each_angle(view, [](const RopeTable &op, double p) {
        return op.magnitude * (op.temperature > 0 ? 1 + op.temperature * std::log(1 + p / op.temperature_every) : 1);
    });
}
void temperature_a_position_early(const LaunchView &view) {
    each_angle(view, [](const RopeTable &op, double p) {
        if (op.temperature == 0) return op.magnitude;
        return op.magnitude * (1 + op.temperature * std::log(1 + std::floor((p + 1) / op.temperature_every)));
    });
}
void temperature_for_the_magnitude(const LaunchView &view) {
    each_angle(view, [](const RopeTable &op, double p) {
        if (op.temperature == 0) return op.magnitude;
        return 1 + op.temperature * std::log(1 + std::floor(p / op.temperature_every));
    });
}

// ---- kv_write into q8_0, all of it right but for one mistake; other types are written rightly

struct BlockMistake {
    const char *name;
    uint16_t (*scale)(float quotient);  // max|x| / 127
    int (*code)(float x, float quotient, float scale);
    bool scale_last = false;
};
uint16_t right_scale(float quotient) {
    const uint16_t scale = gate::to_f16(quotient);
    return scale < 0x7c00 ? scale : 0x7e00;
}
int held(float code) { return static_cast<int>(std::clamp(code, -127.0f, 127.0f)); }
int right_code(float x, float, float scale) { return held(std::nearbyint(x * (1 / scale))); }
const BlockMistake kBlockMistakes[] = {
    {"takes the scale before it is rounded", right_scale,
     [](float x, float quotient, float) { return held(std::nearbyint(x * (1 / quotient))); }},
    {"rounds codes to nearest, ties away from 0", right_scale,
     [](float x, float, float scale) { return held(std::round(x * (1 / scale))); }},
    {"cuts codes off", right_scale, [](float x, float, float scale) { return held(x * (1 / scale)); }},
    {"lets codes wrap", right_scale,
     [](float x, float, float scale) { return static_cast<int>(std::nearbyint(x * (1 / scale))); }},
    {"keeps an infinite scale", [](float quotient) { return gate::to_f16(quotient); }, right_code},
    {"has scales for codes up to 128", [](float quotient) { return right_scale(quotient * 127 / 128); }, right_code},
    {"cuts the scale off",
     [](float quotient) {
         const uint16_t scale = right_scale(quotient);
         return static_cast<uint16_t>(scale < 0x7c00 && gate::from_f16(scale) > quotient ? scale - 1 : scale);
     },
     right_code},
    {"writes the scale last", right_scale, right_code, true},
};

void write_block(const BlockMistake &m, const float *x, std::byte *out) {
    float most = 0;
    for (int j = 0; j < 32; j++) most = std::max(most, std::fabs(x[j]));
    const float quotient = most / 127;
    const uint16_t bits = m.scale(quotient);
    const auto scale = static_cast<float>(gate::from_f16(bits));
    std::memcpy(out + (m.scale_last ? 32 : 0), &bits, sizeof bits);
    for (int j = 0; j < 32; j++) {
        const int code = bits > 0 && bits < 0x7c00 ? m.code(x[j], quotient, scale) : 0;
        out[(m.scale_last ? 0 : 2) + j] = static_cast<std::byte>(code);
    }
}

template <size_t mistake>
void wrong_kv_write(const LaunchView &view) {
    const auto &op = std::get<KvWrite>(view.op);
    const auto write = [&](ValueId v, StateId s) {
        const DType type = view.program.state(s).type;
        const size_t n = view.cols(v), bytes = row_bytes(type, view.cols(v));
        for (uint32_t i = 0; i < view.step.tokens(); i++) {
            const float *x = view.ptr<const float>(v) + i * n;
            const size_t slot = view.step.slot(static_cast<uint32_t>(view.step.sequence()[i]),
                                               static_cast<uint32_t>(view.step.position()[i]));
            std::byte *out = view.state<std::byte>(s) + slot * bytes;
            if (type == DType::f32) std::memcpy(out, x, bytes);
            for (size_t j = 0; type == DType::f16 && j < n; j++) {
                const uint16_t half = gate::to_f16(x[j]);
                std::memcpy(out + 2 * j, &half, sizeof half);
            }
            for (size_t b = 0; type == DType::q8_0 && b < n / 32; b++)
                write_block(kBlockMistakes[mistake], x + 32 * b, out + sizeof(Q8Block) * b);
        }
    };
    write(op.k, op.k_state), write(op.v, op.v_state);
}

const WrongRow kRows[] = {
    {kind<Quantize>(), "rounds halves up", quantize_half_up},
    {kind<Softmax>(), "does not subtract the maximum", softmax_without_maximum},
    {kind<TopK>(), "prefers the last of equals", top_k_of_equals_the_last},
    {kind<Sample>(), "cuts after the temperature", sample_wrongly<SampleMistake::temperature_first>},
    {kind<Sample>(), "takes min-p before top-p", sample_wrongly<SampleMistake::min_p_first>},
    {kind<Sample>(), "takes min-p of the mass", sample_wrongly<SampleMistake::min_p_of_mass>},
    {kind<Sample>(), "prefers the last of equals", sample_wrongly<SampleMistake::ties_high>},
    {kind<Sample>(), "draws from rows with a NaN", sample_wrongly<SampleMistake::no_bad>},
    {kind<Sample>(), "takes the largest", sample_wrongly<SampleMistake::largest>},
    {kind<Sample>(), "rounds exponentials to f32", sample_wrongly<SampleMistake::exp_f32>},
    {kind<Normalize>(), "leaves one out of the sum", normalize_all_but_one},
    {kind<Add>(), "writes beyond the last row", add_beyond_the_end},
    {kind<Add>(), "changes its input", add_in_place},
    {kind<Add>(), "does nothing", write_nothing},
    {kind<Add>(), "scales the sum", add_scales_the_sum},
    {kind<Add>(), "rounds the product", add_rounds_twice},
    {kind<Scale>(), "scales after the cap", scale_after_the_cap},
    {kind<Scale>(), "cuts off at the cap", scale_holds_hard},
    {kind<Scale>(), "divides by the scale", scale_divides},
    {kind<Scale>(), "overflows far above the cap", scale_overflows},
    {kind<RowGate>(), "forgets the sigmoid", row_gate_without_sigmoid},
    {kind<RowGate>(), "gates by the opposite", row_gate_turned_round},
    {kind<RowGate>(), "takes silu", row_gate_with_silu},
    {kind<RopeTable>(), "has a temperature without steps", temperature_without_steps},
    {kind<RopeTable>(), "heats a position early", temperature_a_position_early},
    {kind<RopeTable>(), "has a temperature or a magnitude", temperature_for_the_magnitude},
};

}  // namespace

std::span<const WrongRow> wrong_rows() {
    static const std::vector<WrongRow> all = [] {
        std::vector<WrongRow> rows(std::begin(kRows), std::end(kRows));
        [&]<size_t... I>(std::index_sequence<I...>) {
            (rows.push_back({kind<Glu>(), kUnitMistakes[I].name, wrong_unit<I>}), ...);
        }
        (std::make_index_sequence<std::size(kUnitMistakes)>{});
        [&]<size_t... I>(std::index_sequence<I...>) {
            (rows.push_back({kind<KvWrite>(), kBlockMistakes[I].name, wrong_kv_write<I>}), ...);
        }
        (std::make_index_sequence<std::size(kBlockMistakes)>{});
        return rows;
    }();
    return all;
}

}  // namespace ridge::test
