// A shared library opened at run time, and its functions.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace ridge::simt {

class Library {
  public:
    // The first of `names` that opens.
    explicit Library(std::initializer_list<std::string> names) {
        for (const std::string &n : names) {
            if (n.empty() || handle_) continue;
            handle_ = dlopen(n.c_str(), RTLD_NOW | RTLD_LOCAL);
            if (handle_)
                name_ = n;
            else if (const char *why = dlerror(); why && (why_.empty() || n.find('/') != std::string::npos))
                why_ = why;
        }
    }
    explicit operator bool() const { return handle_ != nullptr; }
    const std::string &name() const { return name_; }
    const std::string &why() const { return why_; }

    // Fills `f`; false and the name kept in missing() where the library has no such function.
    template <class F>
    bool get(F &f, const char *symbol) {
        f = reinterpret_cast<F>(dlsym(handle_, symbol));
        if (f == nullptr && missing_.empty()) missing_ = symbol;
        return f != nullptr;
    }
    const std::string &missing() const { return missing_; }

  private:
    void *handle_ = nullptr;  // stays open: its functions are used until the process ends
    std::string name_, why_, missing_;
};

}  // namespace ridge::simt
