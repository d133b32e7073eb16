// What the parsers of statements and of expressions share: the tokens, the names, how deep it goes.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"

namespace ridge::text::jinja {

class ParserBase {
  public:
    ParserBase(std::string_view source, std::string_view origin) : origin_(origin), tokens_(tokenize(source, origin)) {}

  protected:
    // Nested statements and expressions in the source; a chain such as a + b + c counts each link.
    static constexpr uint32_t kMaxDepth = 400;
    // Of one call, or parameters of one macro.
    static constexpr size_t kMaxNamed = 255;

    const Token &current() const { return tokens_[at_]; }
    const Token &ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    Token take() { return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_[at_]; }

    bool is(TokenKind kind) const { return current().kind == kind; }
    bool is_op(std::string_view op) const { return is(TokenKind::op) && current().text == op; }
    bool is_name(std::string_view name) const { return is(TokenKind::name) && current().text == name; }
    bool skip_op(std::string_view op);
    bool skip_name(std::string_view name);
    Token expect(TokenKind kind, std::string_view what);
    void expect_op(std::string_view op);
    void expect_name(std::string_view name);

    [[noreturn]] void error(Position at, std::string_view text) const { syntax_error(origin_, at, text); }
    [[noreturn]] void limit_error(Position at, std::string_view text) const;
    [[noreturn]] void unexpected(std::string_view expected) const;

    NameId intern(const std::string &name);

    // Counts a level for as long as it lives.
    class Level {
      public:
        explicit Level(ParserBase &parser);
        ~Level() { --parser_.depth_; }
        Level(const Level &) = delete;
        Level &operator=(const Level &) = delete;

      private:
        ParserBase &parser_;
    };

    // The special names that the macro being parsed uses.
    struct MacroUse {
        bool caller = false, kwargs = false, varargs = false;
    };

    std::string_view origin_;
    std::vector<Token> tokens_;
    size_t at_ = 0;
    uint32_t depth_ = 0;
    std::vector<std::string> names_;
    std::vector<MacroUse> macros_;
    // Filters and tests that do not exist. Directly inside {% if %} and inline ifs that is an error only where one is
    // used, elsewhere at once: who parses an `if` takes them out of here, who parses another body refuses them.
    struct Unknown {
        Position at;
        std::string name;
        std::string (*message)(std::string_view name);
    };
    std::vector<Unknown> unknown_;
    void refuse_unknown(size_t first) const;

  private:
    std::unordered_map<std::string, NameId> ids_;
};

class ExpressionParser : public ParserBase {
  public:
    using ParserBase::ParserBase;

  protected:
    ExprPtr expression(bool with_conditional = true);
    // Expressions with commas between them are a tuple; it ends at a tag's end, at ')' or at the name `end`.
    ExprPtr tuple(bool with_conditional, std::string_view end = {}, bool in_parentheses = false);
    // `| filter` ...; of `input`, or of a block's text where that is null: then null where there is no filter.
    ExprPtr filters(ExprPtr input, bool first_without_pipe = false);

  private:
    ExprPtr conditional();
    ExprPtr logical_or();
    ExprPtr logical_and();
    ExprPtr logical_not();
    ExprPtr comparison();
    ExprPtr sum();
    ExprPtr concat();
    ExprPtr product();
    ExprPtr power();
    ExprPtr unary(bool with_filter = true);
    ExprPtr primary();
    ExprPtr name();
    ExprPtr integer();
    ExprPtr list();
    ExprPtr dict();
    ExprPtr postfix(ExprPtr of);
    ExprPtr filter_expression(ExprPtr of);
    ExprPtr subscript(ExprPtr of);
    ExprPtr slice(ExprPtr of, ExprPtr start, Position at);
    ExprPtr call(ExprPtr of);
    ExprPtr test(ExprPtr of);
    CallArguments arguments();
    void argument(CallArguments &out, Position at);

    Expr make(ExprKind kind, Position at) const;
    ExprPtr finish(Expr e) const;
    ExprPtr binary(ExprKind kind, Position at, ExprPtr left, ExprPtr right, Arithmetic operation = {}) const;
    ExprPtr constant(Position at, Value value) const;
};

}  // namespace ridge::text::jinja
