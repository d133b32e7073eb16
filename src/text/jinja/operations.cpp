#include "text/jinja/operations.h"

#include <algorithm>

#include "gguf/printable.h"
#include "text/jinja/format.h"
#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {

bool truth(const Value &v) {
    switch (v.kind()) {
        case Kind::missing:
        case Kind::undefined:
        case Kind::none:
            return false;
        case Kind::boolean:
        case Kind::integer:
            return v.whole() != 0;
        case Kind::real:
            return v.number() != 0;
        case Kind::string:
            return !v.text().empty();
        case Kind::list:
        case Kind::tuple:
        case Kind::range:
        case Kind::view:
            return !v.sequence().items.empty();
        case Kind::dict:
            return !v.dict().entries.empty();
        default:
            return true;
    }
}

bool equal(const Value &a, const Value &b, Budget &budget) {
    budget.step();
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
        case Kind::undefined:
        case Kind::none:
            return true;
        case Kind::string:
            budget.work(std::min(a.text().size(), b.text().size()));
            return a.text().bytes() == b.text().bytes();
        case Kind::list:
        case Kind::tuple:
        case Kind::range:
        case Kind::view:
            return std::ranges::equal(a.sequence().items, b.sequence().items,
                                      [&](const Value &x, const Value &y) { return equal(x, y, budget); });
        case Kind::dict: {
            const Dict &x = a.dict(), &y = b.dict();
            if (x.entries.size() != y.entries.size()) return false;
            return std::ranges::all_of(x.index, [&](const auto &at) {
                const Value *other = y.find(at.first);
                return other != nullptr && equal(x.entries[at.second].second, *other, budget);
            });
        }
        default:
            return a.object() == b.object();
    }
}

namespace {

[[noreturn]] void no_order(std::string_view op, const Value &a, const Value &b) {
    for (const Value &v : {a, b}) {
        if (v.is_undefined()) raise("{}", v.text().bytes());
    }
    raise("'{}' not supported between '{}' and '{}'", op, type_name(a), type_name(b));
}

// -1, 0, 1, or 2 where neither is less and they are not equal (NaN).
int order(std::string_view op, const Value &a, const Value &b, Budget &budget) {
    budget.step();
    if (a.is_number() && b.is_number()) return compare_numbers(a, b);
    if (a.is_string() && b.is_string()) {
        budget.work(std::min(a.text().size(), b.text().size()));
        const int c = a.text().bytes().compare(b.text().bytes());
        return c < 0 ? -1 : c > 0;
    }
    if (a.kind() != b.kind() || !(a.is(Kind::list) || a.is(Kind::tuple))) no_order(op, a, b);
    const Values &x = a.sequence().items, &y = b.sequence().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        if (!equal(x[i], y[i], budget)) return order(op, x[i], y[i], budget);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
}

}  // namespace

bool less(const Value &a, const Value &b, Budget &budget) { return order("<", a, b, budget) == -1; }

bool compare(Comparison op, const Value &a, const Value &b, Budget &budget) {
    switch (op) {
        case Comparison::equal:
            return equal(a, b, budget);
        case Comparison::not_equal:
            return !equal(a, b, budget);
        case Comparison::less:
            return order("<", a, b, budget) == -1;
        case Comparison::greater:
            return order(">", a, b, budget) == 1;
        case Comparison::less_equal: {
            const int c = order("<=", a, b, budget);
            return c == -1 || c == 0;
        }
        case Comparison::greater_equal: {
            const int c = order(">=", a, b, budget);
            return c == 1 || c == 0;
        }
        case Comparison::in:
            return contains(b, a, budget);
        case Comparison::not_in:
            return !contains(b, a, budget);
    }
    return false;
}

bool contains(const Value &container, const Value &item, Budget &budget) {
    switch (container.kind()) {
        case Kind::undefined:
            return false;
        case Kind::string:
            if (!item.is_string()) {
                raise("'in <string>' requires a string on its left, not '{}'", type_name(item));
            }
            budget.work(container.text().size());
            return find(container.text(), item.text(), budget) != std::string_view::npos;
        case Kind::dict:
            return container.dict().find(key_of(item, budget)) != nullptr;
        case Kind::list:
        case Kind::tuple:
        case Kind::range:
        case Kind::view:
        case Kind::iterator: {
            const Values items = iterate(container, budget);
            return std::ranges::any_of(items, [&](const Value &v) { return equal(v, item, budget); });
        }
        default:
            raise("argument of type '{}' is not iterable", type_name(container));
    }
}

int64_t length(const Value &v, Budget &budget) {
    switch (v.kind()) {
        case Kind::undefined:
            return 0;
        case Kind::string:
            budget.work(v.text().size());
            return static_cast<int64_t>(character_count(v.text()));
        case Kind::list:
        case Kind::tuple:
        case Kind::range:
        case Kind::view:
            return static_cast<int64_t>(v.sequence().items.size());
        case Kind::dict:
            return static_cast<int64_t>(v.dict().entries.size());
        case Kind::loop:
            return static_cast<int64_t>(static_cast<const Loop *>(v.object())->items.size());
        default:
            raise("object of type '{}' has no len()", type_name(v));
    }
}

bool is_iterable(const Value &v) {
    return v.is_undefined() || v.is_string() || v.is_sequence() || v.is(Kind::dict) || v.is(Kind::loop);
}

Values iterate(const Value &v, Budget &budget) {
    switch (v.kind()) {
        case Kind::undefined:
            return {};
        case Kind::string: {
            Values out;
            const Text &text = v.text();
            for (size_t at = 0; at < text.size();) {
                const size_t end = at + character_at(std::string_view(text).substr(at)).length;
                budget.step();
                budget.require(out.size() * sizeof(Value));
                out.push_back(substring(v, at, end, budget));
                at = end;
            }
            return out;
        }
        case Kind::dict: {
            Values out;
            budget.work(v.dict().entries.size() * 16);
            for (const auto &[key, value] : v.dict().entries) out.push_back(key);
            return out;
        }
        case Kind::iterator: {
            Sequence &s = v.sequence();
            const size_t from = std::exchange(s.next, s.items.size());
            budget.work((s.items.size() - from) * 16);
            return {s.items.begin() + static_cast<std::ptrdiff_t>(from), s.items.end()};
        }
        case Kind::list:
        case Kind::tuple:
        case Kind::range:
        case Kind::view:
            budget.work(v.sequence().items.size() * 16);
            budget.require(v.sequence().items.size() * sizeof(Value));
            return v.sequence().items;
        default:
            raise("'{}' object is not iterable", type_name(v));
    }
}

Value to_str(const Value &v, Budget &budget) {
    if (v.is_string()) return v;
    Text text(&budget);
    append_str(text, v, budget);
    return Maker(budget).string(std::move(text));
}

void append_escaped(Text &out, const Value &v, Budget &budget) {
    if (v.is_string() && v.string().is_markup) return out.append(v.text());
    const Value text = to_str(v, budget);
    const std::string_view s = text.text();
    budget.work(s.size() * 2);
    size_t from = 0;
    for (size_t at = 0; at < s.size(); ++at) {
        const std::string_view entity = s[at] == '&'    ? "&amp;"
                                        : s[at] == '<'  ? "&lt;"
                                        : s[at] == '>'  ? "&gt;"
                                        : s[at] == '\'' ? "&#39;"
                                        : s[at] == '"'  ? "&#34;"
                                                        : "";
        if (entity.empty()) continue;
        out.append(text.text(), from, at);
        out.append(entity, text.text().from_template(at));
        from = at + 1;
    }
    out.append(text.text(), from, s.size());
}

namespace {

std::string_view symbol(Arithmetic op) {
    switch (op) {
        case Arithmetic::add:
            return "+";
        case Arithmetic::subtract:
            return "-";
        case Arithmetic::multiply:
            return "*";
        case Arithmetic::divide:
            return "/";
        case Arithmetic::floor_divide:
            return "//";
        case Arithmetic::modulo:
            return "%";
        case Arithmetic::power:
            return "**";
    }
    return "";
}

Value add_strings(const Value &a, const Value &b, Budget &budget) {
    Text text(&budget);
    budget.work(a.text().size() + b.text().size());
    const bool is_markup = a.string().is_markup || b.string().is_markup;
    if (is_markup) {
        append_escaped(text, a, budget);
        append_escaped(text, b, budget);
    } else {
        text.append(a.text());
        text.append(b.text());
    }
    return Maker(budget).string(std::move(text), is_markup);
}

Value repeat(const Value &v, int64_t times, Budget &budget) {
    const auto n = static_cast<uint64_t>(std::max<int64_t>(times, 0));
    const uint64_t each = v.is_string() ? v.text().size() : v.sequence().items.size() * sizeof(Value);
    if (each > 0 && n > budget.limits().memory / each) budget.require(budget.limits().memory + 1);
    budget.require(each * n);
    budget.work(each * n);
    if (v.is_string()) {
        Text text(&budget);
        for (uint64_t i = 0; each > 0 && i < n; ++i) text.append(v.text());
        return Maker(budget).string(std::move(text), v.string().is_markup);
    }
    Values items;
    for (uint64_t i = 0; each > 0 && i < n; ++i) {
        items.insert(items.end(), v.sequence().items.begin(), v.sequence().items.end());
    }
    return Maker(budget).sequence(v.kind(), std::move(items), v.sequence().type);
}

bool is_list_or_tuple(const Value &v) { return v.is(Kind::list) || v.is(Kind::tuple); }

}  // namespace

Value arithmetic(Interpreter &run, Arithmetic op, const Value &a, const Value &b) {
    Budget &budget = run.budget;
    if (a.is_number() && b.is_number()) return compute(op, a, b);
    for (const Value *v : {&a, &b}) {
        if (v->is_undefined()) raise("{}", v->text().bytes());
    }
    if (op == Arithmetic::add) {
        if (a.is_string() && b.is_string()) return add_strings(a, b, budget);
        if (a.kind() == b.kind() && is_list_or_tuple(a)) {
            Values items = iterate(a, budget);
            const Values more = iterate(b, budget);
            items.insert(items.end(), more.begin(), more.end());
            return run.make.sequence(a.kind(), std::move(items), a.sequence().type);
        }
    }
    if (op == Arithmetic::multiply) {
        if ((a.is_string() || is_list_or_tuple(a)) && b.is_whole()) return repeat(a, b.whole(), budget);
        if ((b.is_string() || is_list_or_tuple(b)) && a.is_whole()) return repeat(b, a.whole(), budget);
    }
    if (op == Arithmetic::modulo && a.is_string()) {
        Arguments arguments;
        if (b.is(Kind::tuple)) {
            arguments.positional = b.sequence().items;
        } else {
            arguments.positional.push_back(b);
        }
        return format_percent(run, a, arguments.positional, b);
    }
    raise("'{}' is not possible between '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

namespace {

std::string object_name(const Value &v) { return v.is(Kind::none) ? "None" : fmt::format("{} object", type_name(v)); }

Value no_element(Interpreter &run, const Value &v, const Value &key) {
    if (key.is_string()) {
        return run.make.undefined(
            fmt::format("'{}' has no attribute '{}'", object_name(v), gguf::printable(key.text().bytes())));
    }
    Text name(&run.budget);
    append_repr(name, key, run.budget);
    return run.make.undefined(fmt::format("{} has no element {}", object_name(v), gguf::printable(name.bytes())));
}

// v[key] without attributes; missing where python has no such item.
Value plain_item(Interpreter &run, const Value &v, const Value &key) {
    switch (v.kind()) {
        case Kind::dict: {
            if (key.is(Kind::list) || key.is(Kind::dict)) return {};
            const Value *found = v.dict().find(key_of(key, run.budget));
            return found == nullptr ? Value() : *found;
        }
        case Kind::list:
        case Kind::tuple:
        case Kind::range: {
            if (!key.is_whole()) return {};
            const Values &items = v.sequence().items;
            const auto size = static_cast<int64_t>(items.size());
            const int64_t i = key.whole() < 0 ? key.whole() + size : key.whole();
            return i < 0 || i >= size ? Value() : items[static_cast<size_t>(i)];
        }
        case Kind::string: {
            if (!key.is_whole()) return {};
            const int64_t size = length(v, run.budget);
            const int64_t i = key.whole() < 0 ? key.whole() + size : key.whole();
            if (i < 0 || i >= size) return {};
            const size_t begin = byte_offset(v.text(), static_cast<size_t>(i));
            return substring(v, begin, begin + character_at(std::string_view(v.text()).substr(begin)).length,
                             run.budget);
        }
        default:
            return {};
    }
}

}  // namespace

Value attribute(Interpreter &run, const Value &v, std::string_view name) {
    if (v.is_undefined()) raise("{}", v.text().bytes());
    Value found = find_attribute(run, v, name);
    if (!found.is_missing()) return found;
    if (v.is(Kind::dict)) {
        if (const Value *entry = v.dict().find(string_key(name))) return *entry;
    }
    return run.make.undefined(fmt::format("'{}' has no attribute '{}'", object_name(v), gguf::printable(name)));
}

Value item(Interpreter &run, const Value &v, const Value &key) {
    if (v.is_undefined()) raise("{}", v.text().bytes());
    Value found = plain_item(run, v, key);
    if (found.is_missing() && key.is_string()) found = find_attribute(run, v, key.text().bytes());
    return found.is_missing() ? no_element(run, v, key) : found;
}

Value substring(const Value &of, size_t begin, size_t end, Budget &budget) {
    budget.work(end - begin);
    Text text(&budget);
    text.append(of.text(), begin, end);
    return Maker(budget).string(std::move(text), of.string().is_markup);
}

namespace {

int64_t slice_bound(const Value &v, int64_t preset) {
    if (v.is(Kind::none) || v.is_missing()) return preset;
    if (!v.is_whole()) raise("the bounds of a slice are integers or none, not '{}'", type_name(v));
    return v.whole();
}

}  // namespace

Value slice(Interpreter &run, const Value &v, const Value &start, const Value &stop, const Value &step) {
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (!v.is_string() && !is_list_or_tuple(v) && !v.is(Kind::range)) raise("'{}' has no slices", type_name(v));
    const int64_t by = slice_bound(step, 1);
    if (by == 0) raise("the step of a slice cannot be zero");
    const int64_t size = length(v, run.budget);
    const auto clamped = [&](const Value &bound, int64_t preset) {
        int64_t i = slice_bound(bound, preset);
        if (bound.is(Kind::none) || bound.is_missing()) return preset;
        if (i < 0) i = i < -size ? -1 : i + size;
        const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
        return std::clamp(i, low, std::max(low, high));
    };
    const int64_t first = clamped(start, by > 0 ? 0 : size - 1);
    const int64_t last = clamped(stop, by > 0 ? size : -1);
    if (v.is_string() && by == 1) {
        const size_t begin = byte_offset(v.text(), static_cast<size_t>(first));
        const size_t end = byte_offset(v.text(), static_cast<size_t>(std::max(first, last)));
        return substring(v, begin, end, run.budget);
    }
    const Values items = iterate(v, run.budget);
    Values taken;
    for (int64_t i = first; by > 0 ? i < last : i > last;) {
        taken.push_back(items[static_cast<size_t>(i)]);
        if (__builtin_add_overflow(i, by, &i)) break;
    }
    if (!v.is_string()) {
        Value out = run.make.sequence(v.kind(), std::move(taken), v.sequence().type);
        if (v.is(Kind::range)) {
            const Sequence &of = v.sequence();
            // Only for printing: what leaves 64 bits may wrap.
            const auto at = [&](int64_t i) {
                return static_cast<int64_t>(static_cast<uint64_t>(of.start) +
                                            static_cast<uint64_t>(i) * static_cast<uint64_t>(of.by));
            };
            out.sequence().start = at(first);
            out.sequence().stop = at(last);
            out.sequence().by = static_cast<int64_t>(static_cast<uint64_t>(by) * static_cast<uint64_t>(of.by));
        }
        return out;
    }
    Text text(&run.budget);
    for (const Value &character : taken) text.append(character.text());
    return run.make.string(std::move(text), v.string().is_markup);
}

}  // namespace ridge::text::jinja
