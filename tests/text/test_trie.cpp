// The trie against a map.
#include "text/trie.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <string>

namespace ridge::text {
namespace {

TEST(Trie, FindsTheLongestKey) {
    EXPECT_TRUE(rc::check("trie == map", [] {
        const auto letters = rc::gen::elementOf(std::string("ab\xFF\0", 4));
        const auto keys = *rc::gen::container<std::vector<std::string>>(rc::gen::container<std::string>(letters));
        std::map<std::string, int32_t> map;
        std::vector<Trie::Entry> entries;
        for (const std::string &key : keys) {
            if (key.empty()) continue;
            const auto value = static_cast<int32_t>(entries.size());
            map.try_emplace(key, value);  // of equal keys the first
            entries.push_back({key, value});
        }
        const Trie trie(entries);
        const auto text = *rc::gen::container<std::string>(letters);
        Trie::Match expected;
        for (const auto &[key, value] : map) {
            if (text.starts_with(key) && key.size() > expected.length) expected = {key.size(), value};
            RC_ASSERT(trie.longest(key).value == value);
        }
        RC_ASSERT(trie.longest(text).length == expected.length);
        RC_ASSERT(trie.longest(text).value == expected.value);
    }));
}

TEST(Trie, MayBeEmpty) {
    EXPECT_EQ(Trie().longest("a").length, 0u);
    EXPECT_EQ(Trie().child(Trie::kRoot, 'a'), Trie::kNoNode);
}

TEST(Trie, HasAllBytes) {
    std::vector<std::string> keys;
    for (int first = 0; first < 256; ++first) {
        for (int second = 0; second < 256; second += 5) {
            keys.push_back({static_cast<char>(first), static_cast<char>(second)});
        }
    }
    std::vector<Trie::Entry> entries;
    for (const auto &key : keys) entries.push_back({key, static_cast<int32_t>(entries.size())});
    const Trie trie(entries);
    for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(trie.longest(keys[i] + "x").value, static_cast<int32_t>(i));
    EXPECT_EQ(trie.longest(std::string_view("\0\1", 2)).length, 0u);
}

}  // namespace
}  // namespace ridge::text
