// Expressions, from the loosest operator to the tightest:
//     inline if, or, and, not, comparisons with in, + -, ~, * / // %, **, unary - +, then | filters and `is` tests, and
//     last calls, attributes and subscripts
#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"
#include "gguf/printable.h"
#include "text/jinja/functions.h"
#include "text/jinja/number.h"
#include "text/jinja/parser_base.h"

namespace ridge::text::jinja {

namespace {

std::string describe(const Token &token) {
    switch (token.kind) {
        case TokenKind::data:
            return "text";
        case TokenKind::variable_begin:
            return "'{{'";
        case TokenKind::variable_end:
            return "'}}'";
        case TokenKind::block_begin:
            return "'{%'";
        case TokenKind::block_end:
            return "'%}'";
        case TokenKind::string:
            return "a string";
        case TokenKind::end:
            return "the end of the template";
        default:
            return fmt::format("'{}'", gguf::printable(token.text, 40));
    }
}

}  // namespace

bool ParserBase::skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    take();
    return true;
}

bool ParserBase::skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
}

void ParserBase::limit_error(Position at, std::string_view text) const {
    fail(ErrorKind::limit, "{}: chat template, line {}, column {}: {}", origin_, at.line, at.column, text);
}

void ParserBase::unexpected(std::string_view expected) const {
    error(current().at, fmt::format("{} was expected, but {} stands here", expected, describe(current())));
}

Token ParserBase::expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) unexpected(what);
    return take();
}

void ParserBase::expect_op(std::string_view op) {
    if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}

void ParserBase::expect_name(std::string_view name) {
    if (!skip_name(name)) unexpected(fmt::format("'{}'", name));
}

NameId ParserBase::intern(const std::string &name) {
    const auto [it, is_new] = ids_.try_emplace(name, static_cast<NameId>(names_.size()));
    if (is_new) names_.push_back(name);
    return it->second;
}

ParserBase::Level::Level(ParserBase &parser) : parser_(parser) {
    if (parser.depth_ >= kMaxDepth) {
        parser.limit_error(parser.current().at, fmt::format("more than {} levels are nested here", kMaxDepth));
    }
    ++parser_.depth_;
}

void ParserBase::refuse_unknown(size_t first) const {
    if (unknown_.size() > first) error(unknown_[first].at, unknown_[first].message(unknown_[first].name));
}

Expr ExpressionParser::make(ExprKind kind, Position at) const {
    Expr e{};
    e.kind = kind;
    e.at = at;
    return e;
}

ExprPtr ExpressionParser::finish(Expr e) const {
    const auto above = [&](const ExprPtr &part) {
        if (part) e.depth = std::max(e.depth, part->depth + 1);
    };
    std::ranges::for_each(e.parts, above);
    std::ranges::for_each(e.arguments.positional, above);
    for (const auto &[name, value] : e.arguments.named) above(value);
    above(e.arguments.star);
    above(e.arguments.double_star);
    if (e.depth > kMaxDepth) {
        limit_error(e.at, fmt::format("this expression has more than {} levels", kMaxDepth));
    }
    return std::make_unique<const Expr>(std::move(e));
}

ExprPtr ExpressionParser::binary(ExprKind kind, Position at, ExprPtr left, ExprPtr right, Arithmetic operation) const {
    Expr e = make(kind, at);
    e.operation = operation;
    e.parts.push_back(std::move(left));
    e.parts.push_back(std::move(right));
    return finish(std::move(e));
}

ExprPtr ExpressionParser::constant(Position at, Value value) const {
    Expr e = make(ExprKind::constant, at);
    e.constant = std::move(value);
    return finish(std::move(e));
}

ExprPtr ExpressionParser::expression(bool with_conditional) {
    const Level level(*this);
    return with_conditional ? conditional() : logical_or();
}

ExprPtr ExpressionParser::tuple(bool with_conditional, std::string_view end, bool in_parentheses) {
    Expr e = make(ExprKind::tuple, current().at);
    bool has_comma = false;
    while (true) {
        if (is(TokenKind::variable_end) || is(TokenKind::block_end) || is_op(")")) break;
        if (!end.empty() && is_name(end)) break;
        e.parts.push_back(expression(with_conditional));
        if (!skip_op(",")) break;
        has_comma = true;
    }
    if (!has_comma) {
        if (!e.parts.empty()) return std::move(e.parts[0]);
        if (!in_parentheses) unexpected("an expression");
    }
    return finish(std::move(e));
}

ExprPtr ExpressionParser::conditional() {
    Position at = current().at;
    const size_t unknown = unknown_.size();
    ExprPtr value = logical_or();
    while (skip_name("if")) {
        Expr e = make(ExprKind::conditional, at);
        e.parts.push_back(logical_or());
        e.parts.push_back(std::move(value));
        ExprPtr otherwise;
        if (skip_name("else")) {
            const Level level(*this);
            otherwise = conditional();
        }
        e.parts.push_back(std::move(otherwise));
        value = finish(std::move(e));
        unknown_.resize(unknown);
        at = current().at;
    }
    return value;
}

ExprPtr ExpressionParser::logical_or() {
    const Position at = current().at;
    ExprPtr left = logical_and();
    while (skip_name("or")) left = binary(ExprKind::logical_or, at, std::move(left), logical_and());
    return left;
}

ExprPtr ExpressionParser::logical_and() {
    const Position at = current().at;
    ExprPtr left = logical_not();
    while (skip_name("and")) left = binary(ExprKind::logical_and, at, std::move(left), logical_not());
    return left;
}

ExprPtr ExpressionParser::logical_not() {
    if (!is_name("not")) return comparison();
    const Level level(*this);
    Expr e = make(ExprKind::logical_not, take().at);
    e.parts.push_back(logical_not());
    return finish(std::move(e));
}

ExprPtr ExpressionParser::comparison() {
    struct Row {
        std::string_view op;
        Comparison comparison;
    };
    constexpr std::array<Row, 6> kRows{{{"==", Comparison::equal},
                                        {"!=", Comparison::not_equal},
                                        {"<", Comparison::less},
                                        {"<=", Comparison::less_equal},
                                        {">", Comparison::greater},
                                        {">=", Comparison::greater_equal}}};
    Expr e = make(ExprKind::compare, current().at);
    e.parts.push_back(sum());
    while (true) {
        const auto row = std::ranges::find_if(kRows, [&](const Row &r) { return is_op(r.op); });
        if (row != kRows.end()) {
            take();
            e.comparisons.push_back(row->comparison);
        } else if (skip_name("in")) {
            e.comparisons.push_back(Comparison::in);
        } else if (is_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
            take();
            take();
            e.comparisons.push_back(Comparison::not_in);
        } else {
            break;
        }
        e.parts.push_back(sum());
    }
    return e.comparisons.empty() ? std::move(e.parts[0]) : finish(std::move(e));
}

ExprPtr ExpressionParser::sum() {
    const Position at = current().at;
    ExprPtr left = concat();
    while (is_op("+") || is_op("-")) {
        const Arithmetic op = take().text == "+" ? Arithmetic::add : Arithmetic::subtract;
        left = binary(ExprKind::arithmetic, at, std::move(left), concat(), op);
    }
    return left;
}

ExprPtr ExpressionParser::concat() {
    Expr e = make(ExprKind::concat, current().at);
    e.parts.push_back(product());
    while (skip_op("~")) e.parts.push_back(product());
    return e.parts.size() == 1 ? std::move(e.parts[0]) : finish(std::move(e));
}

ExprPtr ExpressionParser::product() {
    const Position at = current().at;
    ExprPtr left = power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
        const Arithmetic operation = is_op("*")    ? Arithmetic::multiply
                                     : is_op("/")  ? Arithmetic::divide
                                     : is_op("//") ? Arithmetic::floor_divide
                                                   : Arithmetic::modulo;
        take();
        left = binary(ExprKind::arithmetic, at, std::move(left), power(), operation);
    }
    return left;
}

ExprPtr ExpressionParser::power() {
    const Position at = current().at;
    ExprPtr left = unary();
    while (skip_op("**")) left = binary(ExprKind::arithmetic, at, std::move(left), unary(), Arithmetic::power);
    return left;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
    const Level level(*this);
    ExprPtr e;
    if (is_op("-") || is_op("+")) {
        const Token op = take();
        Expr sign = make(op.text == "-" ? ExprKind::negative : ExprKind::positive, op.at);
        sign.parts.push_back(unary(false));
        e = finish(std::move(sign));
    } else {
        e = primary();
    }
    e = postfix(std::move(e));
    return with_filter ? filter_expression(std::move(e)) : std::move(e);
}

ExprPtr ExpressionParser::primary() {
    const Position at = current().at;
    if (is(TokenKind::name)) return name();
    if (is(TokenKind::string)) {
        Text text;
        while (is(TokenKind::string)) text.append(take().text, true);
        return constant(at, Value::of(Kind::string, std::make_shared<String>(nullptr, std::move(text), false)));
    }
    if (is(TokenKind::integer)) return integer();
    if (is(TokenKind::real)) return constant(at, Value::real(parse_real(take().text).value()));
    if (skip_op("(")) {
        ExprPtr e = tuple(true, {}, true);
        expect_op(")");
        return e;
    }
    if (is_op("[")) return list();
    if (is_op("{")) return dict();
    unexpected("an expression");
}

ExprPtr ExpressionParser::integer() {
    const Token token = take();
    try {
        return constant(token.at, Value::integer(parse_integer(token.text, 0).value()));
    } catch (const Trouble &) {
        error(token.at, "this integer has more than 64 bits");
    }
}

ExprPtr ExpressionParser::name() {
    const Token token = take();
    if (token.text == "true" || token.text == "True") return constant(token.at, Value::boolean(true));
    if (token.text == "false" || token.text == "False") return constant(token.at, Value::boolean(false));
    if (token.text == "none" || token.text == "None") return constant(token.at, Value::none());
    if (!macros_.empty()) {
        macros_.back().caller |= token.text == "caller";
        macros_.back().kwargs |= token.text == "kwargs";
        macros_.back().varargs |= token.text == "varargs";
    }
    Expr e = make(ExprKind::name, token.at);
    e.name = intern(token.text);
    return finish(std::move(e));
}

ExprPtr ExpressionParser::list() {
    Expr e = make(ExprKind::list, take().at);
    while (!is_op("]")) {
        e.parts.push_back(expression());
        if (!skip_op(",")) break;
    }
    expect_op("]");
    return finish(std::move(e));
}

ExprPtr ExpressionParser::dict() {
    Expr e = make(ExprKind::dict, take().at);
    while (!is_op("}")) {
        e.parts.push_back(expression());
        expect_op(":");
        e.parts.push_back(expression());
        if (!skip_op(",")) break;
    }
    expect_op("}");
    return finish(std::move(e));
}

ExprPtr ExpressionParser::postfix(ExprPtr of) {
    while (true) {
        if (is_op(".") || is_op("[")) {
            of = subscript(std::move(of));
        } else if (is_op("(")) {
            of = call(std::move(of));
        } else {
            return of;
        }
    }
}

ExprPtr ExpressionParser::filter_expression(ExprPtr of) {
    while (true) {
        if (is_op("|")) {
            of = filters(std::move(of));
        } else if (is_name("is")) {
            of = test(std::move(of));
        } else if (is_op("(")) {
            of = call(std::move(of));
        } else {
            return of;
        }
    }
}

ExprPtr ExpressionParser::subscript(ExprPtr of) {
    const Token open = take();
    if (open.text == ".") {
        if (is(TokenKind::integer)) return binary(ExprKind::item, open.at, std::move(of), integer());
        Expr e = make(ExprKind::attribute, open.at);
        e.text = expect(TokenKind::name, "the name of an attribute").text;
        e.parts.push_back(std::move(of));
        return finish(std::move(e));
    }
    if (is_op(":")) return slice(std::move(of), nullptr, open.at);
    ExprPtr first = is_op("]") ? nullptr : expression();
    if (is_op(":")) return slice(std::move(of), std::move(first), open.at);
    if (first && skip_op("]")) return binary(ExprKind::item, open.at, std::move(of), std::move(first));
    Expr key = make(ExprKind::tuple, open.at);
    if (first) key.parts.push_back(std::move(first));
    while (!is_op("]")) {
        expect_op(",");
        key.parts.push_back(expression());
    }
    expect_op("]");
    return binary(ExprKind::item, open.at, std::move(of), finish(std::move(key)));
}

// Behind the start, at the first ':'.
ExprPtr ExpressionParser::slice(ExprPtr of, ExprPtr start, Position at) {
    Expr e = make(ExprKind::slice, at);
    e.parts.push_back(std::move(of));
    e.parts.push_back(std::move(start));
    expect_op(":");
    e.parts.push_back(is_op(":") || is_op("]") ? nullptr : expression());
    e.parts.push_back(skip_op(":") && !is_op("]") ? expression() : nullptr);
    expect_op("]");
    return finish(std::move(e));
}

CallArguments ExpressionParser::arguments() {
    CallArguments out;
    const Position at = current().at;
    expect_op("(");
    while (!is_op(")")) {
        argument(out, at);
        if (!skip_op(",")) break;
    }
    expect_op(")");
    return out;
}

void ExpressionParser::argument(CallArguments &out, Position at) {
    constexpr std::string_view kOrder = "arguments stand in this order: by position, by name, *, **; the last two once";
    if (skip_op("*")) {
        if (out.star || out.double_star) error(at, kOrder);
        out.star = expression();
    } else if (skip_op("**")) {
        if (out.double_star) error(at, kOrder);
        out.double_star = expression();
    } else if (is(TokenKind::name) && ahead().kind == TokenKind::op && ahead().text == "=") {
        if (out.double_star) error(at, kOrder);
        if (out.named.size() == kMaxNamed) {
            limit_error(current().at, fmt::format("a call has more than {} named arguments", kMaxNamed));
        }
        std::string name = take().text;
        take();
        const bool is_new = std::ranges::none_of(out.named, [&](const auto &named) { return named.first == name; });
        if (!is_new) error(at, fmt::format("the argument '{}' is given twice", gguf::printable(name)));
        ExprPtr value = expression();
        out.named.emplace_back(std::move(name), std::move(value));
    } else {
        if (out.star || out.double_star || !out.named.empty()) error(at, kOrder);
        out.positional.push_back(expression());
    }
}

ExprPtr ExpressionParser::call(ExprPtr of) {
    Expr e = make(ExprKind::call, current().at);
    e.parts.push_back(std::move(of));
    e.arguments = arguments();
    return finish(std::move(e));
}

ExprPtr ExpressionParser::filters(ExprPtr input, bool first_without_pipe) {
    while (is_op("|") || first_without_pipe) {
        if (!first_without_pipe) take();
        first_without_pipe = false;
        Expr e = make(ExprKind::filter, current().at);
        e.text = expect(TokenKind::name, "the name of a filter").text;
        while (skip_op(".")) e.text += '.' + expect(TokenKind::name, "the name of a filter").text;
        if (is_op("(")) e.arguments = arguments();
        e.native = find_filter(e.text);
        if (e.native == nullptr) unknown_.push_back({e.at, e.text, no_such_filter});
        e.parts.push_back(input ? std::move(input) : finish(make(ExprKind::block_text, e.at)));
        input = finish(std::move(e));
    }
    return input;
}

ExprPtr ExpressionParser::test(ExprPtr of) {
    const Position at = take().at;
    const bool negated = skip_name("not");
    Expr e = make(ExprKind::test, at);
    e.text = expect(TokenKind::name, "the name of a test").text;
    while (skip_op(".")) e.text += '.' + expect(TokenKind::name, "the name of a test").text;
    const bool starts_operand = (is(TokenKind::name) && !is_name("else") && !is_name("or") && !is_name("and")) ||
                                is(TokenKind::string) || is(TokenKind::integer) || is(TokenKind::real) || is_op("[") ||
                                is_op("{");
    if (is_op("(")) {
        e.arguments = arguments();
    } else if (starts_operand) {
        if (is_name("is")) error(current().at, "tests cannot be chained with 'is'");
        e.arguments.positional.push_back(postfix(primary()));
    }
    e.native = find_test(e.text);
    if (e.native == nullptr) unknown_.push_back({e.at, e.text, no_such_test});
    e.parts.push_back(std::move(of));
    ExprPtr result = finish(std::move(e));
    if (!negated) return result;
    Expr inverse = make(ExprKind::logical_not, at);
    inverse.parts.push_back(std::move(result));
    return finish(std::move(inverse));
}

}  // namespace ridge::text::jinja
