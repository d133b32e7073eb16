// Rows that one instruction set serves as well as another: table look-ups, selection, host trigonometry.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/ops_rows.h"
#include "backend/cpu/row.h"
#include "core/error.h"
#include "format/decode.h"
#include "op/sampling.h"

namespace ridge::cpu {
namespace {

struct EmbedTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<Embed>(view).out).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<Embed>(view);
        const Weight &table = view.program.weight(op.table);
        const size_t cols = view.cols(op.out), bytes = row_bytes(table.format, table.k);
        const Range rows = cut_rows(view, op.out).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            const auto token = static_cast<uint32_t>(view.step.token()[i]);
            RIDGE_ASSERT(token < table.n);
            float *out = view.ptr<float>(op.out) + i * cols;
            dequantize(table.format, view.weight(op.table) + token * bytes, out, cols);
            if (op.scale != 1)
                for (size_t j = 0; j < cols; j++) out[j] *= op.scale;
        }
    }
};

struct RopeTableTile {
    // A cosine and a sine in double cost as much as some twenty elements of another operation.
    static Cut cut(const LaunchView &view) {
        const size_t cost = 20 * size_t{view.cols(op_of<RopeTable>(view).out)};
        return {view.step.tokens(), cost >= kTileElements ? 1 : kTileElements / cost};
    }
    static uint32_t count(const LaunchView &view) { return cut(view).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<RopeTable>(view);
        const size_t cols = view.cols(op.out);
        const Range rows = cut(view).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            float *out = view.ptr<float>(op.out) + i * cols;
            const int32_t position = view.step.position()[i];
            double magnitude = op.magnitude;
            if (op.temperature > 0)
                magnitude *=
                    1 + op.temperature * std::log(1 + std::floor(position / static_cast<double>(op.temperature_every)));
            for (size_t j = 0; j < op.frequency.size(); j++) {
                const double angle = position * op.frequency[j];
                out[2 * j] = static_cast<float>(std::cos(angle) * magnitude);
                out[2 * j + 1] = static_cast<float>(std::sin(angle) * magnitude);
            }
        }
    }
};

struct GatherRowsTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<GatherRows>(view).out).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<GatherRows>(view);
        const size_t cols = view.cols(op.out);
        const Range rows = cut_rows(view, op.out).tile(tile);
        for (size_t j = rows.first; j < rows.last; j++)
            std::memcpy(view.ptr<float>(op.out) + j * cols,
                        view.ptr<float>(op.x) + static_cast<size_t>(view.step.output()[j]) * cols,
                        cols * sizeof(float));
    }
};

struct ArgMaxTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<ArgMax>(view).x).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<ArgMax>(view);
        const size_t cols = view.cols(op.x);
        const Range rows = cut_rows(view, op.x).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++) {
            const float *x = view.ptr<float>(op.x) + i * cols;
            float largest = kMinusInfinity;
            int32_t id = -1;
            bool bad = false;
            for (size_t j = 0; j < cols; j++) {
                bad |= !(x[j] < -kMinusInfinity);
                if (x[j] > largest) largest = x[j], id = static_cast<int32_t>(j);
            }
            view.ptr<int32_t>(op.ids)[i] = bad ? -1 : id;
        }
    }
};

struct SampleTile {
    static uint32_t count(const LaunchView &view) { return cut_rows(view, op_of<Sample>(view).x).count(); }
    static void run(const LaunchView &view, uint32_t tile, std::byte *) {
        const auto &op = op_of<Sample>(view);
        const size_t cols = view.cols(op.x);
        const Range rows = cut_rows(view, op.x).tile(tile);
        for (size_t i = rows.first; i < rows.last; i++)
            view.ptr<int32_t>(op.ids)[i] =
                drawn(view.ptr<float>(op.x) + i * cols, view.cols(op.x), view.step.draw(static_cast<uint32_t>(i)));
    }

  private:
    static int32_t drawn(const float *x, uint32_t n, const Draw &draw) {
        constexpr uint32_t kMost = sampling::kMostCandidates;
        const uint32_t k = std::min(n, draw.temperature > 0 ? std::clamp(draw.top_k, 1U, kMost) : 1);
        if (!std::all_of(x, x + n, [](float v) { return v < -kMinusInfinity; })) return -1;
        int32_t ids[kMost];
        float logits[kMost];
        top_k_row(x, n, k, ids, logits);
        const auto there = static_cast<uint32_t>(std::find(logits, logits + k, kMinusInfinity) - logits);
        if (there <= 1) return there == 0 ? -1 : ids[0];
        double cut[kMost], weight[kMost], cut_sum[kMost], weight_sum[kMost];
        for (uint32_t j = 0; j < there; j++) {
            const double below = static_cast<double>(logits[j]) - static_cast<double>(logits[0]);
            cut[j] = sampling::exp(below);
            weight[j] = sampling::exp(below / static_cast<double>(draw.temperature));
        }
        sampling::add_up(cut, cut_sum, there), sampling::add_up(weight, weight_sum, there);
        const uint32_t kept = sampling::kept(cut, cut_sum, there, draw.top_p, draw.min_p);
        return ids[sampling::drawn(weight_sum, kept, draw.uniform)];
    }
};

constexpr Kernel embed_row() {
    Kernel k = row("cpu.embed.portable", kind<Embed>(), Order::exact, tile_of<EmbedTile>());
    k.formats = FormatSet::all();
    return k;
}

constexpr Kernel kPlain[] = {
    embed_row(),
    row("cpu.rope_table.portable", kind<RopeTable>(), Order::exact, tile_of<RopeTableTile>()),
    row("cpu.top_k.portable", kind<TopK>(), Order::exact, tile_of<TopKTile>()),
    row("cpu.gather_rows.portable", kind<GatherRows>(), Order::exact, tile_of<GatherRowsTile>()),
    row("cpu.arg_max.portable", kind<ArgMax>(), Order::exact, tile_of<ArgMaxTile>()),
    row("cpu.sample.portable", kind<Sample>(), Order::exact, tile_of<SampleTile>()),
};

}  // namespace

constinit const RowTable kOpsPlain = kPlain;

}  // namespace ridge::cpu
