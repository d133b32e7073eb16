// GGUF files written as text, for tests and seeds of fuzzers: they can be read, and mutations stay close to sense. One
// thing per line, words separated by spaces; lines that make no sense are skipped.
//
//   str general.architecture llama
//   u32 llama.block_count 1                 u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool str
//   str[] tokenizer.ggml.tokens a b \x00   an array; likewise f32[], i32[], ...
//   i32[] tokenizer.ggml.token_type 6*256 1 an element 256 times
//   str[] tokenizer.ggml.tokens @level a    256 strings: the bytes in GPT-2's alphabet; @hex: <0x00> ... <0xFF>
//   tensor 0 output_norm.weight 8           type number, name, dimensions, the fastest first
//   tensor 0 rope_freqs.weight 4 = 1 2 1 1  its first elements as f32; what is not given is zeros
//
// In a word, \xNN is a byte, \s a space, \n a line feed, \t a tab, \\ a backslash, and \e nothing: a word of its own is
// empty.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/layout.h"

namespace ridge::test {

inline std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

inline std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    while (true) {
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        if (line.empty()) return words;
        const size_t end = std::min(line.find(' '), line.size());
        words.push_back(line.substr(0, end));
        line.remove_prefix(end);
    }
}

inline std::string unescaped(std::string_view word) {
    std::string out;
    auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0; };
    for (size_t i = 0; i < word.size(); i++) {
        if (word[i] != '\\' || i + 1 == word.size()) {
            out += word[i];
            continue;
        }
        switch (word[++i]) {
            case 's':
                out += ' ';
                break;
            case 'n':
                out += '\n';
                break;
            case 't':
                out += '\t';
                break;
            case 'e':
                break;
            case 'x':
                if (i + 2 < word.size()) out += static_cast<char>(digit(word[i + 1]) * 16 + digit(word[i + 2]));
                i += 2;
                break;
            default:
                out += word[i];
        }
    }
    return out;
}

inline double real_of(std::string_view word) { return std::strtod(std::string(word).c_str(), nullptr); }
inline float float_of(std::string_view word) {
    const double x = real_of(word);
    return static_cast<float>(std::isfinite(x) ? std::clamp(x, -3e38, 3e38) : x);
}
inline int64_t integer_of(std::string_view word) { return std::strtoll(std::string(word).c_str(), nullptr, 0); }

namespace detail {

inline constexpr uint64_t kAlignment = 32;
inline constexpr uint64_t kMostData = uint64_t{1} << 36;     // of tensors: zeros that take no memory
inline constexpr uint64_t kMostWritten = uint64_t{1} << 20;  // of the data, with elements that are given
inline constexpr size_t kMostElements = 256;                 // given for a tensor
inline constexpr uint64_t kMostRepeats = 4096;               // of an array's element
inline constexpr uint64_t kMostArray = uint64_t{1} << 16;

template <class T>
inline std::string le(T v) {
    return std::string(reinterpret_cast<const char *>(&v), sizeof v);
}

inline std::string text_of(std::string_view s) { return le<uint64_t>(s.size()) + std::string(s); }

// The names of the value types, by the numbers of the format.
inline constexpr std::array<std::string_view, 13> kKinds{"u8",   "i8",  "u16", "i16", "u32", "i32", "f32",
                                                         "bool", "str", "",    "u64", "i64", "f64"};

template <class T>
inline std::string integer(std::string_view word) {
    return le(static_cast<T>(integer_of(word)));
}

// One value of kind `kind`, as stored.
inline std::string value(size_t kind, std::string_view word) {
    switch (static_cast<gguf::Type>(kind)) {
        case gguf::Type::u8:
        case gguf::Type::i8:
            return integer<uint8_t>(word);
        case gguf::Type::u16:
        case gguf::Type::i16:
            return integer<uint16_t>(word);
        case gguf::Type::u32:
        case gguf::Type::i32:
            return integer<uint32_t>(word);
        case gguf::Type::u64:
        case gguf::Type::i64:
            return integer<uint64_t>(word);
        case gguf::Type::f32:
            return le(float_of(word));
        case gguf::Type::f64:
            return le(real_of(word));
        case gguf::Type::boolean:
            return std::string(1, integer_of(word) != 0 ? '\1' : '\0');
        case gguf::Type::string:
        case gguf::Type::array:
            break;
    }
    return text_of(unescaped(word));
}

// GPT-2's character for a byte: itself where it is printable in Latin-1, else the next of U+0100, U+0101, ...
inline std::string level_symbol(unsigned byte) {
    auto printable = [](unsigned b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD); };
    unsigned code = byte;
    if (!printable(byte)) {
        code = 0x100;
        for (unsigned b = 0; b < byte; b++) code += printable(b) ? 0 : 1;
    }
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

inline std::string hex_symbol(unsigned byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

// The elements that one word of an array's line stands for, as stored; their number is added to `count`.
inline std::string elements(size_t kind, std::string_view word, uint64_t &count) {
    const bool text = static_cast<gguf::Type>(kind) == gguf::Type::string;
    std::string out;
    if (text && (word == "@level" || word == "@hex")) {
        for (unsigned b = 0; b < 256; b++) out += text_of(word == "@hex" ? hex_symbol(b) : level_symbol(b));
        count += 256;
        return out;
    }
    const size_t star = text ? std::string_view::npos : word.find('*');
    uint64_t repeats = 1;
    if (star != std::string_view::npos)
        repeats = std::min<uint64_t>(static_cast<uint64_t>(integer_of(word.substr(star + 1))), kMostRepeats);
    for (uint64_t i = 0; i < repeats; i++) out += value(kind, word.substr(0, star));
    count += repeats;
    return out;
}

// A metadata entry, or nothing where the line is none.
inline std::optional<std::string> metadata(const std::vector<std::string_view> &words) {
    if (words.size() < 2) return std::nullopt;
    const bool array = words[0].ends_with("[]");
    const std::string_view name = words[0].substr(0, words[0].size() - (array ? 2 : 0));
    const auto found = std::find(kKinds.begin(), kKinds.end(), name);
    if (found == kKinds.end() || name.empty()) return std::nullopt;
    const auto kind = static_cast<size_t>(found - kKinds.begin());
    std::string out = text_of(words[1]);
    if (!array)
        return out + le(static_cast<uint32_t>(kind)) + value(kind, words.size() > 2 ? words[2] : std::string_view{});
    out += le(static_cast<uint32_t>(gguf::Type::array)) + le(static_cast<uint32_t>(kind));
    std::string all;
    uint64_t count = 0;
    for (size_t i = 2; i < words.size() && count < kMostArray; i++) all += elements(kind, words[i], count);
    return out + le(count) + all;
}

struct Info {
    std::string entry;            // all but the offset
    uint64_t bytes = 0;           // of the data
    std::vector<float> elements;  // the first ones
};

inline std::optional<Info> tensor(const std::vector<std::string_view> &words) {
    if (words.size() < 4 || words[0] != "tensor") return std::nullopt;
    const auto type = static_cast<uint32_t>(integer_of(words[1]));
    const auto storage = gguf::find_storage(type);
    const auto equals = std::find(words.begin() + 3, words.end(), "=");
    std::vector<uint64_t> shape;
    for (auto word = words.begin() + 3; word != equals; ++word)
        shape.push_back(static_cast<uint64_t>(integer_of(*word)));
    if (!storage || shape.empty() || shape.size() > gguf::kMaxDims || shape[0] % storage->block != 0)
        return std::nullopt;
    if (std::find(shape.begin(), shape.end(), uint64_t{0}) != shape.end()) return std::nullopt;
    const auto bytes = gguf::tensor_bytes(*storage, shape);
    if (!bytes || *bytes > kMostData) return std::nullopt;
    Info info{text_of(words[2]) + le(static_cast<uint32_t>(shape.size())), *bytes, {}};
    for (const uint64_t d : shape) info.entry += le(d);
    info.entry += le(type);
    for (auto word = equals; word != words.end() && info.elements.size() < kMostElements; ++word)
        if (word != equals) info.elements.push_back(float_of(*word));
    return info;
}

}  // namespace detail

struct Described {
    std::string bytes;  // header and the first elements of tensors
    uint64_t size = 0;  // of the file: what follows `bytes` is zeros
};

// A GGUF file that is right in its structure whatever the text says.
inline Described describe_gguf(std::string_view text) {
    std::string keys, infos;
    std::vector<std::pair<uint64_t, std::vector<float>>> data;  // offset and first elements
    uint64_t n_keys = 0, end = 0;
    for (const std::string_view line : lines_of(text)) {
        const std::vector<std::string_view> words = words_of(line);
        if (const auto entry = detail::metadata(words)) {
            keys += *entry;
            n_keys++;
        } else if (auto info = detail::tensor(words); info && end + info->bytes <= detail::kMostData) {
            infos += info->entry + detail::le(end);
            info->elements.resize(std::min<uint64_t>(info->elements.size(), info->bytes / sizeof(float)));
            data.emplace_back(end, std::move(info->elements));
            end = gguf::align_up(end + info->bytes, detail::kAlignment);
        }
    }
    Described d;
    d.bytes = std::string(gguf::kMagic) + detail::le(gguf::kVersion) + detail::le<uint64_t>(data.size()) +
              detail::le(n_keys) + keys + infos;
    const uint64_t start = gguf::align_up(d.bytes.size(), detail::kAlignment);
    for (const auto &[offset, elements] : data) {
        if (elements.empty() || offset > detail::kMostWritten) continue;  // further on lie zeros only
        d.bytes.resize(start + offset, '\0');
        for (const float e : elements) d.bytes += detail::le(e);
    }
    d.size = start + end;
    return d;
}

}  // namespace ridge::test
