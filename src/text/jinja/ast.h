// A parsed template: statements and expressions. Nothing in it changes while it is rendered.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {

struct Native;

using NameId = uint32_t;  // an index of Program::names

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;
using Exprs = std::vector<ExprPtr>;

enum class ExprKind : uint8_t {
    constant,
    name,
    list,
    tuple,
    dict,        // parts: key, value, key, value, ...
    attribute,   // parts[0].text
    item,        // parts[0][parts[1]]
    slice,       // parts[0][parts[1]:parts[2]:parts[3]], where parts may be null
    call,        // parts[0](arguments)
    filter,      // parts[0] | text(arguments)
    test,        // parts[0] is text(arguments)
    block_text,  // what a filter of a block works on: the text of the block
    logical_not,
    negative,
    positive,
    arithmetic,  // operation
    concat,      // parts joined by ~
    compare,     // parts[0] comparisons[0] parts[1] comparisons[1] ...
    logical_and,
    logical_or,
    conditional,  // parts[1] if parts[0] else parts[2], which may be null
};

enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
enum class Arithmetic : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };

struct CallArguments {
    Exprs positional;
    std::vector<std::pair<std::string, ExprPtr>> named;
    ExprPtr star, double_star;  // *args, **kwargs; may be null
};

struct Expr {
    ExprKind kind;
    Position at;
    uint32_t depth = 0;  // of the tree below
    Exprs parts;
    std::string text;  // of attribute, filter, test
    NameId name = 0;
    Value constant;
    Arithmetic operation{};
    std::vector<Comparison> comparisons;
    CallArguments arguments;
    const Native *native = nullptr;  // filter, test; null: there is none of this name, which only its use raises
};

// What a value is assigned to: a name, an attribute of a namespace, or several.
struct Target {
    enum class Kind : uint8_t { name, attribute, tuple };
    Kind kind;
    Position at;
    NameId name = 0;
    std::string attribute;
    std::vector<Target> parts;
};

struct Statement;
using Body = std::vector<Statement>;

enum class StatementKind : uint8_t {
    data,
    output,        // each of exprs
    branch,        // the first of branches whose test holds (a null one does)
    loop,          // target, exprs[0]: what is gone through, exprs[1]: filter or null; body, otherwise
    set,           // target = exprs[0]
    set_block,     // target = body, through the filter exprs[0] where not null
    macro,         // signature, body
    call_block,    // exprs[0] is a call; signature and body are its caller
    filter_block,  // exprs[0] of body
    with,          // targets[i] = exprs[i] in body
    scope,         // body with its own names, as {% generation %} has it
    leave,         // break
    next,          // continue
};

struct Parameter {
    std::string text;
    NameId name;
    ExprPtr preset;  // null: none
};

struct Signature {
    std::string name;  // empty: the body of a call block
    NameId name_id = 0;
    std::vector<Parameter> parameters;
    bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Branch;

struct Statement {
    StatementKind kind;
    Position at;
    Text data;
    Exprs exprs;
    std::vector<Branch> branches;
    std::vector<Target> targets;
    std::unique_ptr<const Signature> signature;
    Body body, otherwise;
    bool recursive = false;
};

struct Branch {
    ExprPtr test;
    Body body;
};

struct Program {
    std::vector<std::string> names;
    Body body;
};

}  // namespace ridge::text::jinja
