#include "text/jinja/parser.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "gguf/printable.h"
#include "text/jinja/parser_base.h"

namespace ridge::text::jinja {

namespace {

class StatementParser : public ExpressionParser {
  public:
    using ExpressionParser::ExpressionParser;

    std::shared_ptr<const Program> run() {
        auto program = std::make_shared<Program>();
        program->body = body({});
        refuse_unknown(0);
        program->names = std::move(names_);
        return program;
    }

  private:
    using Ends = std::initializer_list<std::string_view>;

    // Until one of the names in `ends` stands behind {%, which is left there; or until the end where there are none.
    Body body(Ends ends) {
        const Level level(*this);
        const Position start = current().at;
        Body out;
        while (true) {
            if (is(TokenKind::data)) {
                Statement s = make(StatementKind::data);
                s.data.append(take().text, true);
                out.push_back(std::move(s));
            } else if (is(TokenKind::variable_begin)) {
                Statement s = make(StatementKind::output);
                take();
                s.exprs.push_back(tuple(true));
                expect(TokenKind::variable_end, "'}}'");
                out.push_back(std::move(s));
            } else if (is(TokenKind::block_begin)) {
                take();
                if (std::ranges::any_of(ends, [&](std::string_view end) { return is_name(end); })) return out;
                out.push_back(statement());
                expect(TokenKind::block_end, "'%}'");
            } else {
                if (ends.size() == 0) return out;
                error(start,
                      fmt::format("what is opened here has no end; '{{% {} %}}' was expected", *(ends.end() - 1)));
            }
        }
    }

    Statement make(StatementKind kind) const {
        Statement s{};
        s.kind = kind;
        s.at = current().at;
        return s;
    }

    // The body of a statement, from the end of its tag to its last tag, whose name is taken. Its names are its own, but
    // for those of {% if %}: see unknown_.
    Body closed_body(std::string_view end) {
        skip_op(":");
        expect(TokenKind::block_end, "'%}'");
        const size_t unknown = unknown_.size();
        Body out = body({end});
        refuse_unknown(unknown);
        take();
        return out;
    }

    Statement statement() {
        struct Row {
            std::string_view name;
            Statement (StatementParser::*parse)();
        };
        static constexpr std::array<Row, 11> kRows{{{"if", &StatementParser::branch},
                                                    {"for", &StatementParser::loop},
                                                    {"set", &StatementParser::set},
                                                    {"macro", &StatementParser::macro},
                                                    {"call", &StatementParser::call_block},
                                                    {"filter", &StatementParser::filter_block},
                                                    {"with", &StatementParser::with},
                                                    {"generation", &StatementParser::generation},
                                                    {"break", &StatementParser::leave},
                                                    {"continue", &StatementParser::leave},
                                                    {"print", &StatementParser::print}}};
        if (!is(TokenKind::name)) unexpected("the name of a statement");
        const auto row = std::ranges::find(kRows, current().text, &Row::name);
        if (row == kRows.end()) {
            error(current().at,
                  fmt::format("there is no statement '{}' here; there are if, for, set, macro, call, filter, with, "
                              "generation, break, continue, print and raw",
                              gguf::printable(current().text)));
        }
        return (this->*row->parse)();
    }

    Statement branch() {
        Statement s = make(StatementKind::branch);
        const size_t unknown = unknown_.size();
        take();
        bool is_else = false;
        while (true) {
            Branch b;
            if (!is_else) b.test = tuple(false);
            skip_op(":");
            expect(TokenKind::block_end, "'%}'");
            b.body = is_else ? body({"endif"}) : body({"elif", "else", "endif"});
            s.branches.push_back(std::move(b));
            const std::string end = take().text;
            if (end == "endif") break;
            is_else = end == "else";
        }
        unknown_.resize(unknown);
        return s;
    }

    Statement loop() {
        Statement s = make(StatementKind::loop);
        take();
        s.targets.push_back(target("in", false));
        expect_name("in");
        s.exprs.push_back(tuple(false, "recursive"));
        s.exprs.push_back(skip_name("if") ? expression() : nullptr);
        s.recursive = skip_name("recursive");
        skip_op(":");
        expect(TokenKind::block_end, "'%}'");
        const size_t unknown = unknown_.size();
        ++loops_;
        s.body = body({"else", "endfor"});
        --loops_;
        refuse_unknown(unknown);
        if (take().text == "else") s.otherwise = closed_body("endfor");
        return s;
    }

    Statement set() {
        Statement s = make(StatementKind::set);
        take();
        s.targets.push_back(target({}, true));
        if (skip_op("=")) {
            s.exprs.push_back(tuple(true));
            return s;
        }
        s.kind = StatementKind::set_block;
        s.exprs.push_back(filters(nullptr));
        s.body = closed_body("endset");
        return s;
    }

    Statement macro() {
        Statement s = make(StatementKind::macro);
        take();
        auto signature = std::make_unique<Signature>();
        signature->name = expect(TokenKind::name, "the name of the macro").text;
        signature->name_id = intern(signature->name);
        if (!is_op("(")) unexpected("'('");
        macro_body(s, *signature, "endmacro");
        s.signature = std::move(signature);
        return s;
    }

    Statement call_block() {
        Statement s = make(StatementKind::call_block);
        take();
        auto signature = std::make_unique<Signature>();
        macro_body(s, *signature, "endcall");
        s.signature = std::move(signature);
        return s;
    }

    // Parameters and body; between them, for a call block, the call.
    void macro_body(Statement &s, Signature &signature, std::string_view end) {
        macros_.emplace_back();
        if (is_op("(")) parameters(signature);
        if (s.kind == StatementKind::call_block) {
            const MacroUse before = macros_.back();
            macros_.pop_back();
            const Position at = current().at;
            ExprPtr called = expression();
            if (called->kind != ExprKind::call) error(at, "a call was expected");
            s.exprs.push_back(std::move(called));
            macros_.push_back(before);
        }
        s.body = macro_statements(end);
        const MacroUse use = macros_.back();
        macros_.pop_back();
        if (!macros_.empty()) {
            macros_.back().caller |= use.caller;
            macros_.back().kwargs |= use.kwargs;
            macros_.back().varargs |= use.varargs;
        }
        const auto is_parameter = [&](std::string_view name) {
            return std::ranges::find(signature.parameters, name, &Parameter::text) != signature.parameters.end();
        };
        signature.uses_caller = use.caller;
        signature.uses_kwargs = use.kwargs && !is_parameter("kwargs");
        signature.uses_varargs = use.varargs && !is_parameter("varargs");
        const auto caller = std::ranges::find(signature.parameters, "caller", &Parameter::text);
        if (use.caller && caller != signature.parameters.end() && !caller->preset) {
            error(s.at, "a parameter 'caller' needs a default value");
        }
        intern("caller");
        intern("kwargs");
        intern("varargs");
    }

    Body macro_statements(std::string_view end) {
        const size_t loops = std::exchange(loops_, 0);
        Body out = closed_body(end);
        loops_ = loops;
        return out;
    }

    void parameters(Signature &signature) {
        expect_op("(");
        while (!is_op(")")) {
            if (!signature.parameters.empty()) expect_op(",");
            if (signature.parameters.size() == kMaxNamed) {
                limit_error(current().at, fmt::format("a macro has more than {} parameters", kMaxNamed));
            }
            const Token name = expect(TokenKind::name, "the name of a parameter");
            for (const Parameter &p : signature.parameters) {
                if (p.text == name.text) error(name.at, fmt::format("the parameter '{}' stands twice", p.text));
            }
            Parameter p{name.text, intern(name.text), nullptr};
            if (skip_op("=")) {
                p.preset = expression();
            } else if (!signature.parameters.empty() && signature.parameters.back().preset) {
                error(name.at, "a parameter without a default value stands behind one with");
            }
            signature.parameters.push_back(std::move(p));
        }
        expect_op(")");
    }

    Statement filter_block() {
        Statement s = make(StatementKind::filter_block);
        take();
        s.exprs.push_back(filters(nullptr, true));
        s.body = closed_body("endfilter");
        return s;
    }

    Statement with() {
        Statement s = make(StatementKind::with);
        take();
        while (!is(TokenKind::block_end)) {
            if (!s.targets.empty()) expect_op(",");
            s.targets.push_back(target({}, false));
            expect_op("=");
            s.exprs.push_back(expression());
        }
        s.body = closed_body("endwith");
        return s;
    }

    Statement generation() {
        Statement s = make(StatementKind::scope);
        take();
        s.body = macro_statements("endgeneration");
        return s;
    }

    Statement leave() {
        Statement s = make(is_name("break") ? StatementKind::leave : StatementKind::next);
        if (loops_ == 0) error(s.at, fmt::format("'{}' stands outside a loop", current().text));
        take();
        return s;
    }

    Statement print() {
        Statement s = make(StatementKind::output);
        take();
        while (!is(TokenKind::block_end)) {
            if (!s.exprs.empty()) expect_op(",");
            s.exprs.push_back(expression());
        }
        return s;
    }

    // What is assigned to: names with commas between them are a tuple, which ends at `end`.
    Target target(std::string_view end, bool with_attribute, bool in_parentheses = false) {
        const Level level(*this);
        Target t{Target::Kind::tuple, current().at, 0, {}, {}};
        bool has_comma = false;
        while (!is_name(end) && !is_op("=") && !is_op(")") && !is(TokenKind::block_end)) {
            t.parts.push_back(one_target(with_attribute));
            if (!skip_op(",")) break;
            has_comma = true;
        }
        if (t.parts.empty() && !in_parentheses) unexpected("a name");
        return t.parts.size() == 1 && !has_comma ? std::move(t.parts[0]) : std::move(t);
    }

    Target one_target(bool with_attribute) {
        if (skip_op("(")) {
            Target t = target({}, false, true);
            expect_op(")");
            return t;
        }
        const Token token = expect(TokenKind::name, "a name");
        for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
            if (token.text == constant) error(token.at, fmt::format("nothing can be assigned to '{}'", constant));
        }
        Target t{Target::Kind::name, token.at, intern(token.text), {}, {}};
        if (with_attribute && skip_op(".")) {
            t.kind = Target::Kind::attribute;
            t.attribute = expect(TokenKind::name, "the name of an attribute").text;
        }
        return t;
    }

    size_t loops_ = 0;  // around the current statement, within its macro
};

}  // namespace

std::shared_ptr<const Program> parse_program(std::string_view source, std::string_view origin) {
    return StatementParser(source, origin).run();
}

}  // namespace ridge::text::jinja
