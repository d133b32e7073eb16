// Line editing with history for interactive chat (libedit).
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace ridge {

class LineEditor {
  public:
    explicit LineEditor(const std::string &prompt);
    ~LineEditor();
    LineEditor(const LineEditor &) = delete;
    LineEditor &operator=(const LineEditor &) = delete;

    // One line without its newline; a line that ends in a backslash goes on in the next. Empty optional at the end of
    // the input (Ctrl-D). Ctrl-C drops what was typed and gives an empty line.
    std::optional<std::string> read();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
