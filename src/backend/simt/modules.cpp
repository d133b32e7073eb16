#include "backend/simt/modules.h"

#include <algorithm>

#include "core/error.h"

namespace ridge::simt {

Modules::~Modules() {
    for (const auto &[file, module] : loaded_) driver_.unload_module(module);
}

Handle Modules::module(std::string_view file) {
    if (const auto found = loaded_.find(file); found != loaded_.end()) return found->second;
    std::string known, why = "nothing was built";
    for (const Image &i : images_) {
        if (i.file != file || (!target_.empty() && i.target != target_)) continue;
        Handle m = nullptr;
        const int code = driver_.load_module(&m, i.code);
        if (code == 0) {
            target_ = i.target;
            return loaded_.emplace(file, m).first->second;
        }
        known += (known.empty() ? "" : " ") + std::string(i.target);
        why = driver_.error(code);
    }
    fail(ErrorKind::unsupported,
         "{}: no code in this program runs on the device: it has {} for {} ({}); a build for the device would add it "
         "(docs/gpu.md)",
         driver_.name, file, known.empty() ? "nothing" : known, why);
}

Handle Modules::function(std::string_view file, std::string_view name) {
    if (const auto found = functions_.find(name.data()); found != functions_.end()) return found->second;
    Handle f = nullptr;
    check(driver_, driver_.find_function(&f, module(file), std::string(name).c_str()),
          ("looking up kernel " + std::string(name)).c_str());
    return functions_.emplace(name.data(), f).first->second;
}

void Modules::allow(Handle function, size_t shared_bytes) {
    constexpr size_t kGranted = 48 << 10;
    size_t &allowed = allowed_[function];
    if (shared_bytes <= std::max(allowed, kGranted)) return;
    check(driver_, driver_.allow_shared(function, static_cast<int>(shared_bytes)), "allowing shared memory");
    allowed = shared_bytes;
}

}  // namespace ridge::simt
