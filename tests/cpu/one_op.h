// A program of one or a few operations with its memory, to run rows directly. Every buffer is an allocation of exactly
// its size, so that an address sanitizer sees a kernel that leaves it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/kv_q8_0.h"
#include "backend/cpu/math.h"

namespace ridge::testing_cpu {

using Bytes = std::vector<std::byte>;

// A mix of ordinary values, outliers, zeros of both signs and subnormals.
inline std::vector<float> random_floats(size_t n, uint32_t seed, float scale = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> x(n);
    for (float &v : x) {
        v = normal(random);
        switch (random() % 40) {
            case 0:
                v *= 30;
                break;
            case 1:
                v = 0;
                break;
            case 2:
                v = -0.0f;
                break;
            case 3:
                v *= 1e-39f;
                break;
        }
    }
    return x;
}

class Bench {
  public:
    explicit Bench(StepLimits limits) : step(limits), limits_(limits) {}

    // Values, weights and state; `data` may be empty (the buffer then holds NaN patterns).
    ValueId value(uint32_t cols, const std::vector<float> &data = {}, Rows rows = Rows::tokens, uint32_t per_row = 1,
                  DType type = DType::f32) {
        const ValueId id =
            program.add_value({"v" + std::to_string(program.values.size()), type, rows, per_row, cols, 0});
        const size_t count =
            size_t{rows == Rows::tokens ? step.view().tokens() : step.view().outputs()} * per_row * cols;
        values_.push_back(buffer(count, data));
        bindings.values.push_back(address(values_.back()));
        return id;
    }
    WeightId weight(const std::vector<float> &data) {
        weights_.push_back(buffer(data.size(), data));
        const Weight w{.name = "w",
                       .format = Format::F32,
                       .n = 1,
                       .k = static_cast<uint32_t>(data.size()),
                       .experts = 1,
                       .data = weights_.back()->data()};
        bindings.weights.push_back(address(weights_.back()));
        return program.add_weight(w);
    }
    StateId state(uint32_t cols, DType type, uint32_t pages, const std::vector<float> &data = {}) {
        const size_t floats = size_t{pages} * kPageTokens * row_bytes(type, cols) / sizeof(float);
        auto bytes = buffer(floats, type == DType::f32 ? data : std::vector<float>{});
        if (type == DType::q8_0 && !data.empty())
            cpu::write_q8_0(data.data(), data.size(), reinterpret_cast<Q8Block *>(bytes->data()));
        if (type == DType::f16)
            for (size_t i = 0; i < data.size(); i++) {
                const uint16_t h = cpu::f32_to_f16(data[i]);
                std::memcpy(bytes->data() + 2 * i, &h, 2);
            }
        states_.push_back(std::move(bytes));
        bindings.states.push_back(address(states_.back()));
        return program.add_state({"s", State::Per::token, cols, type, 0});
    }

    // All tiles of the row on the operation, in a shuffled order, with scratch full of NaN patterns. `workers` > 0: as
    // that many would share them, with memory for what they share.
    void run(const Kernel &k, const Op &op, uint32_t workers = 0) {
        bindings.limits = limits_;
        Bytes shared;
        if (workers > 0 && k.tile.shared_bytes) shared.assign(k.tile.shared_bytes(program, op, limits_) + 64, std::byte{});
        if (shared.size() > 64) std::fill(shared.begin() + Tile::kSharedZero + 64, shared.end(), std::byte{0xff});
        const auto aligned = (reinterpret_cast<uintptr_t>(shared.data()) + 63) / 64 * 64;
        LaunchView view{program, op, bindings, step.view()};
        if (shared.size() > 64) view.shared = reinterpret_cast<std::byte *>(aligned);
        if (workers > 0) view.workers = workers;
        std::vector<uint32_t> tiles(k.tile.count(view));
        for (uint32_t t = 0; t < tiles.size(); t++) tiles[t] = t;
        std::shuffle(tiles.begin(), tiles.end(), std::mt19937(7));
        const auto free = [](std::byte *p) { ::operator delete[](p, std::align_val_t{64}); };
        const std::unique_ptr<std::byte[], decltype(free)> scratch(
            static_cast<std::byte *>(::operator new[](k.tile.scratch_bytes + 1, std::align_val_t{64})), free);
        for (uint32_t t : tiles) {
            std::memset(scratch.get(), 0xff, k.tile.scratch_bytes);
            k.tile.run(view, t, scratch.get());
        }
        const Bytes zeros(view.shared ? Tile::kSharedZero : 0);
        ASSERT_TRUE(std::equal(zeros.begin(), zeros.end(), view.shared)) << k.name << " leaves its counters changed";
    }

    float *data(ValueId v) { return reinterpret_cast<float *>(values_[static_cast<size_t>(v)]->data()); }
    std::vector<float> floats(ValueId v) const { return copy<float>(*values_[static_cast<size_t>(v)]); }
    std::vector<int32_t> ints(ValueId v) const { return copy<int32_t>(*values_[static_cast<size_t>(v)]); }
    const Bytes &state_bytes(StateId s) const { return *states_[static_cast<size_t>(s)]; }

    // Contents of all values and states.
    std::vector<Bytes> snapshot() const {
        std::vector<Bytes> all;
        for (const auto &b : values_) all.push_back(*b);
        for (const auto &b : states_) all.push_back(*b);
        return all;
    }
    void restore(const std::vector<Bytes> &all) {
        size_t i = 0;
        for (const auto &b : values_) std::copy(all[i].begin(), all[i].end(), b->begin()), i++;
        for (const auto &b : states_) std::copy(all[i].begin(), all[i].end(), b->begin()), i++;
    }

    Program program;
    Bindings bindings;
    StepBuffer step;

  private:
    static std::unique_ptr<Bytes> buffer(size_t count, const std::vector<float> &data) {
        auto bytes = std::make_unique<Bytes>(count * sizeof(float), std::byte{0xff});
        const auto *from = reinterpret_cast<const std::byte *>(data.data());
        std::copy_n(from, std::min(count, data.size()) * sizeof(float), bytes->begin());
        return bytes;
    }
    static uint64_t address(const std::unique_ptr<Bytes> &b) { return reinterpret_cast<uint64_t>(b->data()); }
    template <class T>
    static std::vector<T> copy(const Bytes &bytes) {
        std::vector<T> out(bytes.size() / sizeof(T));
        if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
        return out;
    }

    StepLimits limits_;
    std::vector<std::unique_ptr<Bytes>> values_, weights_, states_;
};

// `m` tokens of one sequence from `position` on, pages in reverse order, every `wanted`-th row wanted.
inline Bench bench(uint32_t m, uint32_t position = 0, uint32_t wanted = 1) {
    const uint32_t pages = (position + m + kPageTokens - 1) / kPageTokens;
    Bench b(StepLimits{.tokens = m, .outputs = m, .sequences = 1, .pages = pages});
    b.step.begin();
    for (uint32_t p = 0; p < pages; p++) b.step.set_page(0, p, pages - 1 - p);
    for (uint32_t i = 0; i < m; i++) b.step.add(static_cast<int32_t>(i), position + i, 0, i % wanted == 0);
    return b;
}

// Rows for an operation that this machine can run; the portable one first.
inline std::vector<const Kernel *> rows_for(OpKind op) {
    std::vector<const Kernel *> rows;
    for (const Kernel &k : cpu_kernels())
        if (k.op == op && (k.needs & ~cpu_features()) == 0) rows.push_back(&k);
    std::stable_sort(rows.begin(), rows.end(), [](const Kernel *a, const Kernel *b) { return a->rank < b->rank; });
    return rows;
}

// Runs every row of `op` from the same start and expects the portable row's bits everywhere, which stay in the bench.
template <class T>
void expect_same_bits(Bench &b, const T &op) {
    const std::vector<const Kernel *> rows = rows_for(kind<T>());
    ASSERT_FALSE(rows.empty());
    ASSERT_EQ(rows[0]->lever, Lever::none);
    const std::vector<Bytes> start = b.snapshot();
    b.run(*rows[0], op);
    const std::vector<Bytes> want = b.snapshot();
    ASSERT_NE(start, want) << "the row wrote nothing";
    for (size_t r = 1; r < rows.size(); r++) {
        b.restore(start);
        b.run(*rows[r], op);
        ASSERT_EQ(b.snapshot(), want) << rows[r]->name;
    }
}

template <class T>
void run_portable(Bench &b, const T &op) {
    b.run(*rows_for(kind<T>())[0], op);
}

}  // namespace ridge::testing_cpu
