// Metadata values as the types a caller wants, and as text.
#include <algorithm>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "gguf/gguf.h"
#include "gguf/layout.h"
#include "gguf/printable.h"

namespace ridge::gguf {
namespace {

template <class T>
T load(const std::byte *at) {
    T v;
    std::memcpy(&v, at, sizeof v);
    return v;
}

// Calls f with the number of type t at `at`; false where t is no number.
template <class F>
bool visit_number(Type t, const std::byte *at, F f) {
    switch (t) {
        case Type::u8:
            f(load<uint8_t>(at));
            return true;
        case Type::i8:
            f(load<int8_t>(at));
            return true;
        case Type::u16:
            f(load<uint16_t>(at));
            return true;
        case Type::i16:
            f(load<int16_t>(at));
            return true;
        case Type::u32:
            f(load<uint32_t>(at));
            return true;
        case Type::i32:
            f(load<int32_t>(at));
            return true;
        case Type::u64:
            f(load<uint64_t>(at));
            return true;
        case Type::i64:
            f(load<int64_t>(at));
            return true;
        case Type::boolean:
            f(load<uint8_t>(at));
            return true;
        case Type::f32:
            f(load<float>(at));
            return true;
        case Type::f64:
            f(load<double>(at));
            return true;
        case Type::string:
        case Type::array:
            return false;
    }
    return false;
}

bool is_float(Type t) { return t == Type::f32 || t == Type::f64; }
bool is_integer(Type t) { return !is_float(t) && t != Type::string && t != Type::array; }  // bool too

std::optional<int64_t> integer_at(Type t, const std::byte *at) {
    if (!is_integer(t)) return std::nullopt;
    if (t == Type::u64 && load<uint64_t>(at) > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
    int64_t out = 0;
    visit_number(t, at, [&](auto v) { out = static_cast<int64_t>(v); });
    return out;
}

// The string at `at` (u64 length, bytes), which parse() has checked.
std::string_view string_at(const std::byte *at) { return {reinterpret_cast<const char *>(at + 8), load<uint64_t>(at)}; }

// Strings are cut after `limit` characters and then followed by their length.
std::string scalar_text(Type t, const std::byte *at, size_t limit) {
    if (t == Type::string) {
        const std::string_view s = string_at(at);
        std::string shown = fmt::format("\"{}\"", printable(s, limit));
        if (s.size() > limit) shown += fmt::format(" ({} bytes)", s.size());
        return shown;
    }
    if (t == Type::boolean) return load<uint8_t>(at) != 0 ? "true" : "false";
    std::string out;
    visit_number(t, at, [&](auto v) { out = fmt::format("{}", +v); });
    return out;
}

}  // namespace

std::optional<uint64_t> Value::as_u64() const {
    if (type == Type::u64) return load<uint64_t>(data);
    const std::optional<int64_t> v = integer_at(type, data);
    if (!v || *v < 0) return std::nullopt;
    return static_cast<uint64_t>(*v);
}

std::optional<int64_t> Value::as_i64() const { return integer_at(type, data); }

std::optional<double> Value::as_f64() const {
    if (type == Type::boolean) return std::nullopt;
    double out = 0;
    if (!visit_number(type, data, [&](auto v) { out = static_cast<double>(v); })) return std::nullopt;
    return out;
}

std::optional<bool> Value::as_bool() const {
    if (type != Type::boolean) return std::nullopt;
    return load<uint8_t>(data) != 0;
}

std::optional<std::string_view> Value::as_string() const {
    if (type != Type::string) return std::nullopt;
    return string_at(data);
}

std::optional<std::vector<std::string_view>> Value::as_strings() const {
    if (type != Type::array || element != Type::string) return std::nullopt;
    std::vector<std::string_view> out;
    out.reserve(count);  // parse() has seen `count` strings of 8 bytes or more
    const std::byte *at = data;
    for (uint64_t i = 0; i < count; i++) {
        out.push_back(string_at(at));
        at += 8 + out.back().size();
    }
    return out;
}

std::optional<std::vector<float>> Value::as_floats() const {
    if (type != Type::array || !is_float(element)) return std::nullopt;
    std::vector<float> out(count);
    for (uint64_t i = 0; i < count; i++)
        visit_number(element, data + i * scalar_bytes(element), [&](auto v) { out[i] = static_cast<float>(v); });
    return out;
}

std::optional<std::vector<int64_t>> Value::as_ints() const {
    if (type != Type::array || !is_integer(element)) return std::nullopt;
    std::vector<int64_t> out(count);
    for (uint64_t i = 0; i < count; i++) {
        const std::optional<int64_t> v = integer_at(element, data + i * scalar_bytes(element));
        if (!v) return std::nullopt;
        out[i] = *v;
    }
    return out;
}

std::string type_text(const Value &v) {
    if (v.type != Type::array) return std::string(type_name(v.type));
    return fmt::format("array of {}", type_name(v.element));
}

std::string preview(const Value &v, size_t max_elements) {
    if (v.type != Type::array) return scalar_text(v.type, v.data, 80);
    if (v.element == Type::array) return fmt::format("[{} arrays]", v.count);
    std::string out = "[";
    const std::byte *at = v.data;
    for (uint64_t i = 0; i < std::min<uint64_t>(v.count, max_elements); i++) {
        if (i > 0) out += ", ";
        out += scalar_text(v.element, at, 24);
        at += v.element == Type::string ? 8 + string_at(at).size() : scalar_bytes(v.element);
    }
    if (v.count > max_elements) out += fmt::format("{}... ({} elements)", max_elements == 0 ? "" : ", ", v.count);
    return out + "]";
}

}  // namespace ridge::gguf
