// Runs a parsed template.
//
// Names are looked up in the scopes around a place, innermost first: each iteration of a loop, each call of a macro and
// the body of each block statement has its own, {% if %} has none. Then come the variables, then the global functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/functions.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {

struct Scope {
    std::shared_ptr<Scope> parent;
    std::vector<std::pair<NameId, Value>> names;
    bool is_kept = false;  // by a macro
};

struct Macro : Object {
    using Object::Object;
    const Signature *signature;
    const Body *body;
    std::shared_ptr<Scope> scope;  // where it was defined
};

struct Loop : Object {
    using Object::Object;
    void drop() override { last_changed = {}; }
    Values items;
    size_t index = 0;
    int64_t outer_loops = 0;               // of a recursive loop
    const Statement *statement = nullptr;  // of a recursive loop: what a call runs
    Value last_changed;
};

class Interpreter {
  public:
    Interpreter(const Program &program, std::string_view origin, const Json &variables, const RenderOptions &options);
    ~Interpreter();
    Interpreter(const Interpreter &) = delete;
    Interpreter &operator=(const Interpreter &) = delete;

    std::vector<Segment> run();

    Value call(const Value &callee, Arguments arguments);
    // Keeps a value that can refer to itself until the end.
    void keep(std::shared_ptr<Object> object);
    const RenderOptions &options() const { return options_; }

    // Counts how deep it goes for as long as it lives; raises past Limits::depth.
    class Level {
      public:
        explicit Level(Interpreter &run);
        ~Level() { --run_.depth_; }
        Level(const Level &) = delete;
        Level &operator=(const Level &) = delete;

      private:
        Interpreter &run_;
    };

    Budget budget;  // before what counts against it
    Maker make;

  private:
    enum class Flow { normal, leave, next };

    [[noreturn]] void fail_at(Position at, const Trouble &trouble) const;
    void define_variables(const Json &variables);

    Flow execute(const Body &body);
    Flow execute(const Statement &s);
    Flow execute_kind(const Statement &s);
    Flow branch(const Statement &s);
    Flow loop(const Statement &s, Values items, int64_t outer_loops);
    Values loop_items(const Statement &s, const Value &of);
    Flow filter_block(const Statement &s);
    Flow set_block(const Statement &s);
    Flow with(const Statement &s);
    void call_block(const Statement &s);
    Value macro(const Statement &s);
    // What `body` writes, in a scope of its own.
    Flow capture(const Body &body, Text &out);

    void write(const Value &v);
    void check_output() const;
    void assign(const Target &t, const Value &v);
    void set(NameId name, Value v);
    Value look_up(NameId name);

    Value evaluate(const Expr &e);
    Value evaluate_kind(const Expr &e);
    Value compare_chain(const Expr &e);
    Value concat(const Expr &e);
    Value dict(const Expr &e);
    Values evaluate_all(const Exprs &exprs);
    Value evaluate_or_missing(const ExprPtr &e) { return e ? evaluate(*e) : Value(); }
    Arguments evaluate(const CallArguments &arguments);
    Value call_macro(const Macro &m, Arguments arguments);
    Value call_loop(const std::shared_ptr<Object> &object, Arguments arguments);
    void bind(const Macro &m, Arguments &arguments);

    struct InScope;  // pushes a scope for as long as it lives

    const Program &program_;
    std::string_view origin_;
    const RenderOptions &options_;
    Values globals_;                              // by NameId
    std::vector<std::shared_ptr<Scope>> scopes_;  // that macros keep
    std::vector<std::shared_ptr<Object>> kept_;
    std::shared_ptr<Scope> scope_;
    Text *out_ = nullptr;
    Value block_text_;
    uint32_t depth_ = 0;
    NameId loop_name_, caller_name_, kwargs_name_, varargs_name_;
};

}  // namespace ridge::text::jinja
