// Files that differ from another in some keys and tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gguf/gguf.h"

namespace ridge::test {

// Differences to a file.
struct Edit {
    std::set<std::string> without;                                            // keys and tensors
    std::map<std::string, std::function<void(gguf::Writer &)>> keys;          // each adds the key it is listed under
    std::map<std::string, std::pair<Format, std::vector<uint64_t>>> tensors;  // replaced or added; filled with zeros
};

// `base` with `edit`, at `path`. Tensors that are not edited keep their bytes.
inline void write_edited(const gguf::File &base, const Edit &edit, const std::filesystem::path &path) {
    gguf::Writer w;
    for (const auto &[key, value] : base.metadata())
        if (!edit.without.contains(std::string(key)) && !edit.keys.contains(std::string(key))) w.add_value(key, value);
    for (const auto &[key, add] : edit.keys) add(w);
    std::vector<const gguf::Tensor *> sources;  // nullptr: zeros
    for (const gguf::Tensor &t : base.tensors()) {
        const std::string name(t.name);
        if (edit.without.contains(name) || edit.tensors.contains(name)) continue;
        w.add_tensor(name, t.format->id, std::span(t.shape.data(), t.n_dims));
        sources.push_back(&t);
    }
    for (const auto &[name, what] : edit.tensors) {
        w.add_tensor(name, what.first, what.second);
        sources.push_back(nullptr);
    }
    w.write(path, [&](size_t index, uint64_t offset, std::span<std::byte> out) {
        if (sources[index])
            std::memcpy(out.data(), sources[index]->data + offset, out.size());
        else
            std::fill(out.begin(), out.end(), std::byte{0});
    });
}

// Edits by what they change: keys of one type or another, what is left out, one tensor.
using Add = std::function<void(gguf::Writer &)>;
inline Add u32(std::string key, uint32_t v) {
    return [=](gguf::Writer &w) { w.add_u32(key, v); };
}
inline Add f32(std::string key, float v) {
    return [=](gguf::Writer &w) { w.add_f32(key, v); };
}
inline Add flag(std::string key, bool v) {
    return [=](gguf::Writer &w) { w.add_bool(key, v); };
}
inline Add text(std::string key, std::string v) {
    return [=](gguf::Writer &w) { w.add_string(key, v); };
}
inline Add ints(std::string key, std::vector<int32_t> v) {
    return [=](gguf::Writer &w) { w.add_i32s(key, v); };
}
inline Add strings(std::string key, std::vector<std::string> v) {
    return [=](gguf::Writer &w) { w.add_strings(key, v); };
}

inline Edit with(std::string key, Add add) {
    Edit e;
    e.keys.emplace(std::move(key), std::move(add));
    return e;
}
inline Edit with_u32(const std::string &key, uint32_t v) { return with(key, u32(key, v)); }
inline Edit with_f32(const std::string &key, float v) { return with(key, f32(key, v)); }
inline Edit with_text(const std::string &key, const std::string &v) { return with(key, text(key, v)); }
inline Edit without(std::string name) {
    Edit e;
    e.without.insert(std::move(name));
    return e;
}
inline Edit tensor(std::string name, Format f, std::vector<uint64_t> shape) {
    Edit e;
    e.tensors.emplace(std::move(name), std::pair(f, std::move(shape)));
    return e;
}

}  // namespace ridge::test
