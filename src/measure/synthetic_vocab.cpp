// Words are made breadth first: every letter, and a space before it, then each word made so far with a letter added.
// A word is made by one merge only, so all words are different, and the merge of a word's front comes before its own.
#include "measure/synthetic_vocab.h"

#include <string_view>

#include "core/error.h"

namespace ridge {
namespace {

constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkqjxz";  // by frequency in English

std::string utf8(uint32_t c) {  // below U+0800
    if (c < 0x80) return {static_cast<char>(c)};
    return {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3f))};
}

bool printable(uint32_t byte) { return (byte > 32 && byte < 127) || (byte > 160 && byte != 173); }

}  // namespace

SyntheticVocab synthetic_vocab(uint32_t size) {
    RIDGE_ASSERT(size >= 256 + 3);
    SyntheticVocab v;
    // GPT-2's spelling: bytes that print stand for themselves as code points, the others are U+0100 and up in turn.
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; byte++) v.tokens.push_back(utf8(printable(byte) ? byte : next++));

    std::vector<std::string> fronts{v.tokens[' ']};
    for (char c : kLetters) fronts.emplace_back(1, c);
    for (size_t i = 0; v.tokens.size() < size - 3; i++) {
        const std::string front = fronts[i];
        for (char c : kLetters) {
            if (v.tokens.size() == size - 3) break;
            v.merges.push_back(front + ' ' + c);
            v.tokens.push_back(front + c);
            fronts.push_back(front + c);
        }
    }
    v.types.assign(v.tokens.size(), 1);
    for (const char *control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
        v.tokens.emplace_back(control);
        v.types.push_back(3);
    }
    v.endoftext = size - 3, v.im_start = size - 2, v.im_end = size - 1;
    return v;
}

}  // namespace ridge
