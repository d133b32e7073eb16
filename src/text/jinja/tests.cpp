// The tests: `value is name(arguments)`.
#include <array>

#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {

namespace {

using Args = const Arguments &;

template <Kind kind>
Value is_kind(Interpreter &, const Value &v, Args) {
    return Value::boolean(v.is(kind));
}

template <bool truth>
Value is_truth(Interpreter &, const Value &v, Args) {
    return Value::boolean(v.is(Kind::boolean) && v.boolean() == truth);
}

template <Comparison op>
Value compares(Interpreter &run, const Value &v, Args a) {
    return Value::boolean(compare(op, v, a[0], run.budget));
}

Value is_defined(Interpreter &, const Value &v, Args) { return Value::boolean(!v.is_undefined()); }
Value is_number(Interpreter &, const Value &v, Args) { return Value::boolean(v.is_number()); }
Value is_iterable_value(Interpreter &, const Value &v, Args) { return Value::boolean(is_iterable(v)); }

Value is_sequence(Interpreter &, const Value &v, Args) {
    // Python asks for a length and for __getitem__: a string, a dict and Undefined have both.
    return Value::boolean(v.is_undefined() || v.is_string() || v.is(Kind::dict) || v.is(Kind::list) ||
                          v.is(Kind::tuple) || v.is(Kind::range));
}

Value is_callable(Interpreter &, const Value &v, Args) {
    // Undefined has a __call__, which raises.
    return Value::boolean(v.is(Kind::macro) || v.is(Kind::native) || v.is(Kind::joiner) || v.is(Kind::loop) ||
                          v.is_undefined());
}

Value remainder_is(Interpreter &run, const Value &v, const Value &by, int64_t expected) {
    const Value remainder = arithmetic(run, Arithmetic::modulo, v, by);
    return Value::boolean(equal(remainder, Value::integer(expected), run.budget));
}
Value is_odd(Interpreter &run, const Value &v, Args) { return remainder_is(run, v, Value::integer(2), 1); }
Value is_even(Interpreter &run, const Value &v, Args) { return remainder_is(run, v, Value::integer(2), 0); }
Value is_divisible(Interpreter &run, const Value &v, Args a) { return remainder_is(run, v, a[0], 0); }

Value is_same(Interpreter &run, const Value &v, Args a) {
    if (v.kind() != a[0].kind()) return Value::boolean(false);
    if (v.object() != nullptr) return Value::boolean(v.object() == a[0].object());
    return Value::boolean(equal(v, a[0], run.budget));
}

template <CharacterClass wanted, CharacterClass refused>
Value has_case(Interpreter &run, const Value &v, Args) {
    const Value text = to_str(v, run.budget);
    const std::string_view s = text.text();
    run.budget.work(s.size() * 8);
    bool found = false;
    for (size_t at = 0; at < s.size();) {
        const Character c = character_at(s.substr(at));
        if (is_a(refused, c.code)) return Value::boolean(false);
        found = found || is_a(wanted, c.code);
        at += c.length;
    }
    return Value::boolean(found);
}

Value is_escaped(Interpreter &, const Value &v, Args) { return Value::boolean(v.is_string() && v.string().is_markup); }

Value names_filter(Interpreter &, const Value &v, Args) {
    return Value::boolean(v.is_string() && find_filter(v.text()) != nullptr);
}
Value names_test(Interpreter &, const Value &v, Args) {
    return Value::boolean(v.is_string() && find_test(v.text()) != nullptr);
}

constexpr Native other(std::string_view name, Value (*call)(Interpreter &, const Value &, Args)) {
    return {.name = name, .call = call, .parameters = {"other"}, .required = 1};
}

constexpr auto kIsLower = has_case<CharacterClass::lower, CharacterClass::upper>;
constexpr auto kIsUpper = has_case<CharacterClass::upper, CharacterClass::lower>;

constexpr std::array kRows{
    Native{.name = "defined", .call = is_defined},
    Native{.name = "undefined", .call = is_kind<Kind::undefined>},
    Native{.name = "none", .call = is_kind<Kind::none>},
    Native{.name = "boolean", .call = is_kind<Kind::boolean>},
    Native{.name = "true", .call = is_truth<true>},
    Native{.name = "false", .call = is_truth<false>},
    Native{.name = "integer", .call = is_kind<Kind::integer>},
    Native{.name = "float", .call = is_kind<Kind::real>},
    Native{.name = "number", .call = is_number},
    Native{.name = "string", .call = is_kind<Kind::string>},
    Native{.name = "mapping", .call = is_kind<Kind::dict>},
    Native{.name = "sequence", .call = is_sequence},
    Native{.name = "iterable", .call = is_iterable_value},
    Native{.name = "callable", .call = is_callable},
    Native{.name = "odd", .call = is_odd},
    Native{.name = "even", .call = is_even},
    other("divisibleby", is_divisible),
    other("sameas", is_same),
    other("in", compares<Comparison::in>),
    other("eq", compares<Comparison::equal>),
    other("==", compares<Comparison::equal>),
    other("equalto", compares<Comparison::equal>),
    other("ne", compares<Comparison::not_equal>),
    other("!=", compares<Comparison::not_equal>),
    other("lt", compares<Comparison::less>),
    other("<", compares<Comparison::less>),
    other("lessthan", compares<Comparison::less>),
    other("le", compares<Comparison::less_equal>),
    other("<=", compares<Comparison::less_equal>),
    other("gt", compares<Comparison::greater>),
    other(">", compares<Comparison::greater>),
    other("greaterthan", compares<Comparison::greater>),
    other("ge", compares<Comparison::greater_equal>),
    other(">=", compares<Comparison::greater_equal>),
    Native{.name = "lower", .call = kIsLower},
    Native{.name = "upper", .call = kIsUpper},
    Native{.name = "escaped", .call = is_escaped},
    Native{.name = "filter", .call = names_filter},
    Native{.name = "test", .call = names_test},
};

}  // namespace

std::span<const Native> tests() { return kRows; }

}  // namespace ridge::text::jinja
