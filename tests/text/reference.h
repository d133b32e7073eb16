// The recorded references of tests/data/tokenizer_*.json (tools/make_tokenizer_reference.py), and what the tests of
// tokenizers share.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace ridge::text::testing {

using Ids = std::vector<int32_t>;

inline constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
inline constexpr EncodeOptions kParsed{.add_special = false, .parse_special = true};

inline std::string read_data(const std::string &name) {
    const std::string path = std::string(RIDGE_TEST_DATA) + "/" + name;
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json data(const std::string &name) { return nlohmann::json::parse(read_data(name)); }

inline std::string from_hex(const std::string &hex) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

struct Case {
    std::string name, bytes;
    bool has_reference;  // the texts; what is not UTF-8 has none
};

// The texts written by hand, then the generated ones; their order is that of the references.
inline std::vector<Case> corpus() {
    std::vector<Case> cases;
    for (const auto *name : {"tokenizer_corpus.json", "tokenizer_random.json"}) {
        const nlohmann::json json = data(name);
        for (const auto &entry : json.at("cases")) {
            Case c{entry.at("name"), "", entry.contains("text")};
            const std::string once = c.has_reference ? entry.at("text").get<std::string>() : from_hex(entry.at("hex"));
            for (int i = 0; i < entry.value("repeat", 1); ++i) c.bytes += once;
            cases.push_back(c);
        }
    }
    return cases;
}

inline std::string fnv1a(std::string_view bytes) {
    uint64_t hash = 0xCBF29CE484222325;
    for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
    return fmt::format("{:016x}", hash);
}

// Of the numbers as 32 little-endian bits each.
inline std::string hash_of(const std::vector<int32_t> &numbers) {
    std::string bytes;
    for (const int32_t number : numbers) {
        for (int shift = 0; shift < 32; shift += 8) {
            bytes += static_cast<char>(static_cast<uint32_t>(number) >> shift & 0xFF);
        }
    }
    return fnv1a(bytes);
}

// As the references keep ids.
inline std::string brief(const std::vector<int32_t> &ids) { return fmt::format("{}:{}", ids.size(), hash_of(ids)); }

inline std::vector<std::string> words(const std::string &line) {
    std::istringstream in(line);
    return {std::istream_iterator<std::string>(in), {}};
}

// The vocabulary of 700 tokens that the reference script trained.
inline Vocabulary small_vocabulary() {
    static const nlohmann::json json = data("tokenizer_small.json");
    Vocabulary v;
    v.origin = "tokenizer_small.json";
    v.model = "gpt2";
    v.pre = json.at("pre");
    v.tokens = json.at("tokens").get<std::vector<std::string>>();
    for (const int type : json.at("types")) v.types.push_back(static_cast<TokenType>(type));
    v.merges = json.at("merges").get<std::vector<std::string>>();
    return v;
}

// Processor time since it was made, so that a bound holds on a busy machine as well.
class ProcessorTime {
  public:
    double seconds() const { return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC; }

  private:
    std::clock_t start_ = std::clock();
};

struct BadVocabulary {
    const char *name;
    std::function<void(Vocabulary &)> spoil;
    ErrorKind kind;
    std::vector<const char *> says;
};

// Each change to `good` must be refused with a message that begins with its origin and says every part.
inline void expect_refused(const Vocabulary &good, std::span<const BadVocabulary> table) {
    Tokenizer::from(good);
    for (const BadVocabulary &bad : table) {
        Vocabulary v = good;
        bad.spoil(v);
        try {
            Tokenizer::from(v);
            ADD_FAILURE() << bad.name << " was accepted";
        } catch (const Error &e) {
            const std::string what = e.what();
            EXPECT_EQ(e.kind(), bad.kind) << what;
            EXPECT_TRUE(what.starts_with(good.origin + ": ")) << what;
            for (const auto *part : bad.says) EXPECT_NE(what.find(part), std::string::npos) << bad.name << ": " << what;
        }
    }
}

}  // namespace ridge::text::testing
