// From the bytes of single tokens to text that may be shown: whole characters only, and nothing of a stop string.
//
//     token bytes -> Utf8Stream -> StopMatcher -> the user
//
// What comes out does not depend on how the input was cut, and both hold back no more than they must.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge::text {

// Passes on whole UTF-8 characters and keeps the start of an unfinished one. Each unit of ill-formed bytes (see utf8.h)
// becomes one U+FFFD, as soon as it is known to be ill-formed.
class Utf8Stream {
  public:
    std::string feed(std::string_view bytes);
    std::string finish();  // what is left: an unfinished character becomes U+FFFD

  private:
    std::string tail_;  // unfinished: at most 3 bytes
};

// Ends a text before the stop string that is complete first; of several that end at the same byte, the longest counts.
// Text that may be the start of a stop string is held back until it is decided.
class StopMatcher {
  public:
    // Throws Error{usage} for an empty stop string, which would stop everywhere.
    explicit StopMatcher(std::vector<std::string> stops);

    std::string feed(std::string_view text);  // nothing more once stopped
    std::string finish();                     // what was held back: the text ended without a stop string
    bool stopped() const { return stopped_; }

  private:
    std::vector<std::string> stops_;
    size_t longest_ = 0;
    std::string held_;  // the longest end of the text so far that is the start of a stop string
    bool stopped_ = false;
};

}  // namespace ridge::text
