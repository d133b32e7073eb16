// A backend that is another one, for tests that change or watch a part of it.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"

namespace ridge::test {

class Forwarding : public Backend {
  public:
    explicit Forwarding(Backend &inner) : inner_(inner) {}
    explicit Forwarding(std::unique_ptr<Backend> inner) : own_(std::move(inner)), inner_(*own_) {}
    DeviceInfo info() const override { return inner_.info(); }
    std::span<const Kernel> kernels() const override { return inner_.kernels(); }
    Features features() const override { return inner_.features(); }
    std::string feature_names(Features f) const override { return inner_.feature_names(f); }
    LeverSet fusions() const override { return inner_.fusions(); }
    Buffer allocate(size_t bytes, std::string_view what) override { return inner_.allocate(bytes, what); }
    Buffer load(const Weight &w, Layout layout) override { return inner_.load(w, layout); }
    void upload(const Buffer &to, size_t offset, std::span<const std::byte> from) override {
        inner_.upload(to, offset, from);
    }
    void download(const Buffer &from, size_t offset, std::span<std::byte> to) override {
        inner_.download(from, offset, to);
    }
    std::unique_ptr<Executable> compile(const Program &p, const Bindings &b, std::vector<Launch> launches) override {
        return inner_.compile(p, b, std::move(launches));
    }

  protected:
    Backend &inner() const { return inner_; }

  private:
    std::unique_ptr<Backend> own_;
    Backend &inner_;
};

}  // namespace ridge::test
