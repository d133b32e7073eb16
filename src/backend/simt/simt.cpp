#include "backend/simt/simt.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backend/simt/ceilings.h"
#include "backend/simt/executable.h"
#include "backend/simt/images.h"
#include "backend/simt/loader.h"
#include "backend/simt/rows.h"
#include "backend/simt/simt_device.h"
#include "core/error.h"

namespace ridge {
namespace {

using namespace simt;

// The rows of all tables, and the kernels of them one after the other as Backend wants them: kernel i is of row i.
struct Rows {
    std::vector<const Row *> rows;
    std::vector<Kernel> kernels;
};

const Rows &all_rows() {
    static const Rows all = [] {
        Rows r;
        for (const auto table :
             {contract_dot_rows(), contract_mma_rows(), contract_f16_rows(), attention_rows(), other_rows()})
            for (const Row &row : table) r.rows.push_back(&row), r.kernels.push_back(row.kernel);
        return r;
    }();
    return all;
}

std::span<const Image> images(bool cuda) { return cuda ? cuda_images() : hip_images(); }

class SimtBackend final : public Backend {
  public:
    SimtBackend(const Driver &driver, const SimtOptions &o)
        : device_(driver, static_cast<int>(o.index), images(o.cuda)) {
        const DriverDevice &d = device_.description();
        if (o.cuda && d.major < 8)
            fail(ErrorKind::unsupported, "{}, {}, has compute capability {}.{}; ridge needs 8.0 or later",
                 device_.name(), d.name, d.major, d.minor);
        // Code for this device, or the sentence that there is none, before anything is loaded.
        features_ = features_of(device_, device_.modules().function("contract_f32", "contract_f32"));
        limits_ = {d.processors, d.wave, d.shared_per_block, d.threads_per_processor};
    }

    DeviceInfo info() const override {
        device_.use();
        size_t free = 0, total = 0;
        check(device_.driver(), device_.driver().memory(&free, &total), "asking for free memory");
        const DriverDevice &d = device_.description();
        const std::string names = feature_names(features_);
        return {device_.name(),
                fmt::format("{}, {} processors{}{}{}", d.name, d.processors,
                            d.major > 0 && device_.driver().is_cuda ? fmt::format(", compute {}.{}", d.major, d.minor)
                                                                    : std::string(),
                            names.empty() ? "" : ", ", names),
                total,
                free,
                1,
                fmt::format("{} {}", device_.driver().name, device_.driver().version),
                d.integrated};
    }

    std::span<const Kernel> kernels() const override { return all_rows().kernels; }
    Features features() const override { return features_; }
    std::string feature_names(Features f) const override {
        std::string names;
        const auto add = [&](Features bit, const char *text) {
            if ((f & bit) != 0) names += (names.empty() ? "" : " ") + std::string(text);
        };
        add(kMma, "mma"), add(kWmma, "wmma"), add(kMfma, "mfma"), add(kMfmaF16, "mfma-f16"), add(kPdl, "pdl");
        add(kLargeShared, "large-shared");
        return names;
    }

    bool captures() const override { return true; }
    LeverSet fusions() const override { return LeverSet::none().with(Lever::publish_q8); }

    Buffer allocate(size_t bytes, std::string_view what) override { return device_.allocate(bytes, what); }
    Buffer load(const Weight &w, Layout layout) override {
        RIDGE_ASSERT(layout == Layout::file);
        Buffer b = device_.allocate(w.bytes(), w.name, false);
        device_.upload(b.address, {w.data, w.bytes()});
        return b;
    }
    // One allocation for all: the driver hands out memory in steps of 2 MiB, and takes a while for each.
    std::vector<Buffer> load_all(std::span<const Weight *const> weights, Layout layout,
                                 const std::function<bool(uint64_t bytes)> &loaded) override {
        RIDGE_ASSERT(layout == Layout::file);
        constexpr size_t kAlign = 256;
        std::vector<size_t> offsets;
        size_t bytes = 0;
        for (const Weight *w : weights) {
            offsets.push_back(bytes);
            bytes += (w->bytes() + kAlign - 1) / kAlign * kAlign;
        }
        const Buffer all = device_.allocate(bytes, "weights", false);
        std::vector<Buffer> buffers;
        std::vector<Transfer> transfers;
        for (size_t i = 0; i < weights.size(); i++) {
            buffers.push_back({all.address + offsets[i], weights[i]->bytes(), all.owner});
            transfers.push_back({buffers[i].address, {weights[i]->data, weights[i]->bytes()}});
        }
        if (!load_to_device(device_.driver(), device_.index(), transfers, loaded)) buffers.clear();
        return buffers;
    }
    bool copies_weights() const override { return true; }
    void upload(const Buffer &to, size_t offset, std::span<const std::byte> from) override {
        RIDGE_ASSERT(offset <= to.bytes && from.size() <= to.bytes - offset);
        device_.upload(to.address + offset, from);
    }
    void download(const Buffer &from, size_t offset, std::span<std::byte> to) override {
        RIDGE_ASSERT(offset <= from.bytes && to.size() <= from.bytes - offset);
        device_.download(from.address + offset, to);
    }
    std::shared_ptr<void> host_memory(size_t bytes) override { return device_.host_memory(bytes); }

    std::unique_ptr<Executable> compile(const Program &program, const Bindings &bindings,
                                        std::vector<Launch> launches) override {
        std::vector<RowLaunch> rows;
        rows.reserve(launches.size());
        const Rows &all = all_rows();
        for (const Launch &l : launches) {
            const auto index = static_cast<size_t>(l.kernel - all.kernels.data());
            RIDGE_ASSERT(index < all.rows.size() && l.kernel->op == program.nodes[l.node].op.index());
            rows.push_back({l, all.rows[index]});
        }
        return make_executable(device_, limits_, (features_ & kPdl) != 0, program, bindings, std::move(rows));
    }

    CeilingFigures ceilings() { return measure_ceilings(device_, limits_, features_); }

  private:
    // `any`: a function of the code that was loaded.
    static Features features_of(Device &device, Handle any) {
        const Driver &driver = device.driver();
        const uint32_t shared = device.description().shared_per_block;
        if (driver.is_cuda) {
            // Of code for less than 9.0, translated for a later device, no kernel waits for the one in front of it.
            int compiled_for = 0;
            check(driver, driver.compiled_for(&compiled_for, any), "asking what code was compiled for");
            return kMma | (compiled_for >= 90 ? kPdl : 0u) | (shared >= 160u << 10 ? kLargeShared : 0u);
        }
        const std::string &target = device.modules().target();
        const Features large = shared >= 64u << 10 ? kLargeShared : 0u;
        if (target.starts_with("gfx11") || target.starts_with("gfx12")) return kWmma | large;
        if (!target.starts_with("gfx9")) return 0;
        return kMfma | large | (target == "gfx90a" ? 0u : kMfmaF16);
    }

    Device device_;
    Features features_ = 0;
    DeviceLimits limits_;
};

const Driver &open_driver(const SimtOptions &o) {
    const std::string_view absent = o.cuda ? cuda_absent() : hip_absent();
    if (images(o.cuda).empty()) fail(ErrorKind::unsupported, "{}", absent);
    return o.cuda ? open_cuda_driver(o.driver) : open_hip_driver(o.driver);
}

}  // namespace

std::unique_ptr<Backend> make_simt_backend(const SimtOptions &o) {
    const Driver &driver = open_driver(o);
    if (o.index >= static_cast<unsigned>(driver.devices))
        fail(ErrorKind::usage, "there is no device {}:{}; there {} {}", o.cuda ? "cuda" : "hip", o.index,
             driver.devices == 1 ? "is one," : "are",
             driver.devices == 1 ? fmt::format("{}:0", o.cuda ? "cuda" : "hip")
                                 : fmt::format("{} of them, from {}:0", driver.devices, o.cuda ? "cuda" : "hip"));
    return std::make_unique<SimtBackend>(driver, o);
}

CeilingFigures measure_simt(Backend &device) { return dynamic_cast<SimtBackend &>(device).ceilings(); }

unsigned count_simt_devices(const SimtOptions &o) { return static_cast<unsigned>(open_driver(o).devices); }

}  // namespace ridge
