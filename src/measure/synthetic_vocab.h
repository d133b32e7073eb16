// A made-up byte-level BPE vocabulary of any size: valid, deterministic, and meaningless.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ridge {

struct SyntheticVocab {
    std::vector<std::string> tokens;  // 256 bytes (as GPT-2 spells them), words, then the three control tokens
    std::vector<int32_t> types;       // 1 normal, 3 control
    std::vector<std::string> merges;  // one for each word
    uint32_t endoftext, im_start, im_end;
};

// Precondition: size >= 259.
SyntheticVocab synthetic_vocab(uint32_t size);

}  // namespace ridge
