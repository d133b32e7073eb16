// The methods of dicts, lists, tuples and ranges that change nothing.
#include <algorithm>
#include <array>

#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace ridge::text::jinja {

namespace {

using Args = const Arguments &;

Value get(Interpreter &run, const Value &self, Args a) {
    const Value *found = self.dict().find(key_of(a[0], run.budget));
    if (found != nullptr) return *found;
    return a.has(1) ? a[1] : Value::none();
}

Value keys(Interpreter &run, const Value &self, Args) {
    return run.make.sequence(Kind::view, iterate(self, run.budget), "dict_keys");
}

Value values(Interpreter &run, const Value &self, Args) {
    Values out;
    run.budget.work(self.dict().entries.size() * 16);
    for (const auto &[key, value] : self.dict().entries) out.push_back(value);
    return run.make.sequence(Kind::view, std::move(out), "dict_values");
}

Value items(Interpreter &run, const Value &self, Args) {
    Values out;
    run.budget.work(self.dict().entries.size() * 16);
    for (const auto &[key, value] : self.dict().entries) out.push_back(run.make.tuple({key, value}));
    return run.make.sequence(Kind::view, std::move(out), "dict_items");
}

Value same(Interpreter &, const Value &self, Args) { return self; }

Value from_keys(Interpreter &run, const Value &, Args a) {
    Value out = run.make.dict();
    for (const Value &key : iterate(a[0], run.budget)) run.make.insert(out, key, a.has(1) ? a[1] : Value::none());
    return out;
}

constexpr std::array kDictRows{
    Native{.name = "get", .call = get, .parameters = {"key", "default"}, .required = 1, .by_position = true},
    Native{.name = "keys", .call = keys},
    Native{.name = "values", .call = values},
    Native{.name = "items", .call = items},
    Native{.name = "copy", .call = same},
    Native{
        .name = "fromkeys", .call = from_keys, .parameters = {"iterable", "value"}, .required = 1, .by_position = true},
};

Value count(Interpreter &run, const Value &self, Args a) {
    const auto is_it = [&](const Value &v) { return equal(v, a[0], run.budget); };
    return Value::integer(std::ranges::count_if(self.sequence().items, is_it));
}

Value index(Interpreter &run, const Value &self, Args a) {
    const Values &all = self.sequence().items;
    const auto size = static_cast<int64_t>(all.size());
    const auto bound = [&](size_t i, int64_t preset) {
        const int64_t n = a.whole(i, preset);
        return n < 0 ? std::max<int64_t>(n < -size ? 0 : n + size, 0) : std::min(n, size);
    };
    const int64_t end = bound(2, size);
    for (int64_t i = bound(1, 0); i < end; ++i) {
        if (equal(all[static_cast<size_t>(i)], a[0], run.budget)) return Value::integer(i);
    }
    raise("the value is not in the {}", type_name(self));
}

constexpr std::array kListRows{
    Native{.name = "count", .call = count, .parameters = {"value"}, .required = 1, .by_position = true},
    Native{
        .name = "index", .call = index, .parameters = {"value", "start", "stop"}, .required = 1, .by_position = true},
    Native{.name = "copy", .call = same},
};

}  // namespace

std::span<const Native> methods_dict() { return kDictRows; }
std::span<const Native> methods_list() { return kListRows; }

}  // namespace ridge::text::jinja
