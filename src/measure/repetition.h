// Whether a generated text has collapsed into repetition, from its token ids alone.
//
//   period   the end of the text repeats the same 1 to 16 tokens for 32 tokens or more
//   loops    it is not that regular, but fewer than half of the runs of four tokens are new: phrases come again and
//   again frame    every second, third or fourth token is the same over 32 tokens, and what lies between varies: a
//   count or a
//            list ("1)2)3)"). It may be meant, so it is told apart and is no collapse
//
// Texts shorter than 32 tokens are never any of them. A period that has only just begun is found when it has lasted.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ridge {

enum class RepetitionKind : uint8_t { none, period, loops, frame };

struct Repetition {
    RepetitionKind kind = RepetitionKind::none;
    uint32_t period = 0;   // tokens that repeat; of a frame the distance of equal tokens; 0: none
    uint32_t covered = 0;  // tokens at the end of the text that follow it
    double fresh = 1;      // share of runs of four tokens that were not there before
    bool collapsed() const { return kind == RepetitionKind::period || kind == RepetitionKind::loops; }
};
Repetition find_repetition(std::span<const int32_t> tokens);
// "repeats 2 tokens over the last 40", "".
std::string to_string(const Repetition &r);

}  // namespace ridge
