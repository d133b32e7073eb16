// A stand-in driver library, opened, with the functions of the CUDA driver that tests call by themselves.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "backend/simt/emulate/standin.h"

namespace ridge::simt {

class StandinLibrary {
  public:
    explicit StandinLibrary(const std::string &name)
        : library_(dlopen((std::string(RIDGE_STANDIN_DIR "/") + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (library_ == nullptr) ADD_FAILURE() << dlerror();
    }
    ~StandinLibrary() {
        if (library_ != nullptr) dlclose(library_);
    }
    StandinLibrary(const StandinLibrary &) = delete;
    StandinLibrary &operator=(const StandinLibrary &) = delete;

    template <class... Args>
    int call(const char *name, Args... args) const {
        return reinterpret_cast<int (*)(Args...)>(symbol(name))(args...);
    }
    void configure(const char *name, uint64_t value) const {
        ASSERT_EQ(call("standin_configure", name, value), 0) << name;
    }
    uint64_t state(const char *name) const {
        return reinterpret_cast<uint64_t (*)(const char *)>(symbol("standin_state"))(name);
    }
    std::string message() const { return reinterpret_cast<const char *(*)()>(symbol("standin_message"))(); }
    std::vector<StandinLaunch> launches() const {
        std::vector<StandinLaunch> all(1024);
        const auto counters = reinterpret_cast<size_t (*)(StandinLaunch *, size_t)>(symbol("standin_counters"));
        all.resize(counters(all.data(), all.size()));
        return all;
    }

  private:
    void *symbol(const char *name) const {
        void *p = dlsym(library_, name);
        EXPECT_NE(p, nullptr) << name;
        return p;
    }
    void *library_;
};

}  // namespace ridge::simt
