// The recorded references of tests/data/tokenizer_*.json (tools/make_tokenizer_reference.py) and the models they are
// of.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/vocabulary.h"

namespace ridge::text::testing {

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

inline std::vector<Case> corpus() {
    std::vector<Case> cases;
    const nlohmann::json json = data("tokenizer_corpus.json");
    for (const auto &entry : json.at("cases")) {
        Case c{entry.at("name"), "", entry.contains("text")};
        const std::string once = c.has_reference ? entry.at("text").get<std::string>() : from_hex(entry.at("hex"));
        for (int i = 0; i < entry.value("repeat", 1); ++i) c.bytes += once;
        cases.push_back(c);
    }
    return cases;
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

}  // namespace ridge::text::testing
