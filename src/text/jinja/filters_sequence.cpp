// Filters of lists, dicts and what else can be gone through.
#include <algorithm>
#include <array>
#include <set>

#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/strings.h"

namespace ridge::text::jinja {

namespace {

using Args = const Arguments &;

bool is_given(const Value &v) { return !v.is_missing() && !v.is(Kind::none); }

// What is behind an attribute "a.b.0" of an item; numbers are indices.
Value attribute_path(Interpreter &run, Value v, const Value &path, const Value &preset) {
    if (!is_given(path)) return v;
    if (!path.is_string()) {
        v = item(run, v, path);
        return v.is_undefined() && is_given(preset) ? preset : v;
    }
    std::string_view rest = path.text();
    while (true) {
        const std::string_view part = rest.substr(0, rest.find('.'));
        run.budget.work(part.size());
        const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
        const auto index = is_index ? parse_integer(part) : std::nullopt;
        v = item(run, v, index ? Value::integer(*index) : run.make.string(part, true));
        if (v.is_undefined() && is_given(preset)) v = preset;
        if (part.size() == rest.size()) return v;
        rest.remove_prefix(part.size() + 1);
    }
}

Value without_case(Interpreter &run, const Value &v, bool case_sensitive) {
    return case_sensitive || !v.is_string() ? v : lower(v, run.budget);
}

// Sorts items by keys; equal ones keep their order, also where reversed.
Values sorted(Interpreter &run, const Values &items, const Values &keys, bool reverse) {
    std::vector<size_t> order(items.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](size_t a, size_t b) {
        return reverse ? less(keys[b], keys[a], run.budget) : less(keys[a], keys[b], run.budget);
    });
    Values out;
    for (const size_t i : order) out.push_back(items[i]);
    return out;
}

Value to_list(Interpreter &run, const Value &v, Args) { return run.make.list(iterate(v, run.budget)); }

Value items_filter(Interpreter &run, const Value &v, Args) {
    if (v.is_undefined()) return run.make.iterator({});
    if (!v.is(Kind::dict)) raise("items takes a mapping, not '{}'", type_name(v));
    Values out;
    for (const auto &[key, value] : v.dict().entries) out.push_back(run.make.tuple({key, value}));
    return run.make.iterator(std::move(out));
}

Value join(Interpreter &run, const Value &v, Args a) {
    Text out(&run.budget);
    const Value separator = a.has(0) ? to_str(a[0], run.budget) : run.make.string("", true);
    bool first = true;
    for (const Value &each : iterate(v, run.budget)) {
        run.budget.work(separator.text().size());
        if (!std::exchange(first, false)) out.append(separator.text());
        append_str(out, attribute_path(run, each, a[1], Value()), run.budget);
    }
    return run.make.string(std::move(out));
}

Value first(Interpreter &run, const Value &v, Args) {
    if (v.is(Kind::iterator)) {
        Sequence &s = v.sequence();
        if (s.next < s.items.size()) return s.items[s.next++];
    } else {
        const Values items = iterate(v, run.budget);
        if (!items.empty()) return items.front();
    }
    return run.make.undefined("there is no first item, the sequence is empty");
}

Value last(Interpreter &run, const Value &v, Args) {
    if (v.is(Kind::iterator)) raise("'{}' object is not reversible", type_name(v));
    const Values items = iterate(v, run.budget);
    return items.empty() ? run.make.undefined("there is no last item, the sequence is empty") : items.back();
}

Value reverse(Interpreter &run, const Value &v, Args) {
    Values items = iterate(v, run.budget);
    std::ranges::reverse(items);
    if (!v.is_string()) {
        return v.is(Kind::iterator) ? run.make.list(std::move(items))
                                    : run.make.iterator(std::move(items), "list_reverseiterator");
    }
    Text out(&run.budget);
    for (const Value &c : items) out.append(c.text());
    return run.make.string(std::move(out), v.string().is_markup);
}

// "a,b.c": a list of what is behind each.
Value sort_key(Interpreter &run, const Value &v, const Value &attributes, bool case_sensitive) {
    if (!attributes.is_string()) {
        return run.make.list({without_case(run, attribute_path(run, v, attributes, Value()), case_sensitive)});
    }
    Values keys;
    std::string_view rest = attributes.text();
    while (true) {
        const std::string_view part = rest.substr(0, rest.find(','));
        const Value path = run.make.string(part, true);
        keys.push_back(without_case(run, attribute_path(run, v, path, Value()), case_sensitive));
        if (part.size() == rest.size()) return run.make.list(std::move(keys));
        rest.remove_prefix(part.size() + 1);
    }
}

Value sort(Interpreter &run, const Value &v, Args a) {
    const Values items = iterate(v, run.budget);
    Values keys;
    for (const Value &each : items) keys.push_back(sort_key(run, each, a[2], a.truth(1, false)));
    return run.make.list(sorted(run, items, keys, a.truth(0, false)));
}

Value dict_sort(Interpreter &run, const Value &v, Args a) {
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (!v.is(Kind::dict)) raise("dictsort takes a dict, not '{}'", type_name(v));
    const std::string_view by = a.text(1, "key");
    if (by != "key" && by != "value") raise("dictsort sorts by \"key\" or \"value\"");
    Values items, keys;
    for (const auto &[key, value] : v.dict().entries) {
        items.push_back(run.make.tuple({key, value}));
        keys.push_back(without_case(run, by == "key" ? key : value, a.truth(0, false)));
    }
    return run.make.list(sorted(run, items, keys, a.truth(2, false)));
}

Value unique(Interpreter &run, const Value &v, Args a) {
    std::set<std::string> seen;
    Values out;
    for (const Value &each : iterate(v, run.budget)) {
        const Value key = without_case(run, attribute_path(run, each, a[1], Value()), a.truth(0, false));
        if (seen.insert(key_of(key, run.budget)).second) out.push_back(each);
    }
    return run.make.iterator(std::move(out));
}

template <bool greatest>
Value extreme(Interpreter &run, const Value &v, Args a) {
    const Values items = iterate(v, run.budget);
    if (items.empty()) return run.make.undefined("there is no aggregated item, the sequence is empty");
    const auto key = [&](const Value &each) {
        return without_case(run, attribute_path(run, each, a[1], Value()), a.truth(0, false));
    };
    Value best = items[0], best_key = key(items[0]);
    for (size_t i = 1; i < items.size(); ++i) {
        Value k = key(items[i]);
        if (greatest ? compare(Comparison::greater, k, best_key, run.budget) : less(k, best_key, run.budget)) {
            best = items[i];
            best_key = std::move(k);
        }
    }
    return best;
}

Value sum(Interpreter &run, const Value &v, Args a) {
    Value total = a.has(1) ? a[1] : Value::integer(0);
    if (total.is_string()) raise("sum cannot add strings; join can");
    for (const Value &each : iterate(v, run.budget)) {
        total = arithmetic(run, Arithmetic::add, total, attribute_path(run, each, a[0], Value()));
    }
    return total;
}

Value batch(Interpreter &run, const Value &v, Args a) {
    const int64_t size = std::max<int64_t>(a.whole(0, 0), -1);
    Values out, row;
    for (const Value &each : iterate(v, run.budget)) {
        if (std::cmp_equal(row.size(), size)) out.push_back(run.make.list(std::exchange(row, {})));
        row.push_back(each);
    }
    if (!row.empty()) {
        const int64_t missing = size - static_cast<int64_t>(row.size());
        if (is_given(a[1]) && missing > 0) {
            run.budget.require(std::min<uint64_t>(static_cast<uint64_t>(missing), UINT64_MAX / sizeof(Value)) *
                               sizeof(Value));
            run.budget.work(static_cast<uint64_t>(missing));
            row.insert(row.end(), static_cast<size_t>(missing), a[1]);
        }
        out.push_back(run.make.list(std::move(row)));
    }
    return run.make.iterator(std::move(out));
}

Value slice_filter(Interpreter &run, const Value &v, Args a) {
    const Values items = iterate(v, run.budget);
    const int64_t slices = a.whole(0, 0);
    if (slices == 0) raise("slice into 0 lists");
    const auto size = static_cast<int64_t>(items.size());
    Values out;
    int64_t at = 0;
    for (int64_t i = 0; i < slices; ++i) {
        run.budget.step();
        const bool is_longer = i < size % slices;
        const int64_t end = at + size / slices + is_longer;
        Values row(items.begin() + at, items.begin() + end);
        if (is_given(a[1]) && !is_longer) row.push_back(a[1]);
        out.push_back(run.make.list(std::move(row)));
        at = end;
    }
    return run.make.iterator(std::move(out));
}

Value group_by(Interpreter &run, const Value &v, Args a) {
    const Values items = iterate(v, run.budget);
    const bool case_sensitive = a.truth(2, false);
    Values keys;
    for (const Value &each : items) {
        keys.push_back(without_case(run, attribute_path(run, each, a[0], a[1]), case_sensitive));
    }
    const Values all = sorted(run, items, keys, false);
    Values groups, group;
    Value key, group_key;
    const auto finish = [&] {
        if (group.empty()) return;
        const Value name = attribute_path(run, group[0], a[0], a[1]);
        groups.push_back(
            run.make.sequence(Kind::tuple, {name, run.make.list(std::exchange(group, {}))}, "_GroupTuple"));
    };
    for (const Value &each : all) {
        key = without_case(run, attribute_path(run, each, a[0], a[1]), case_sensitive);
        if (!group.empty() && !equal(key, group_key, run.budget)) finish();
        if (group.empty()) group_key = key;
        group.push_back(each);
    }
    finish();
    return run.make.list(std::move(groups));
}

Value map(Interpreter &run, const Value &v, Args a) {
    Values out;
    if (v.is_undefined()) return run.make.iterator({});
    const auto named = [&](std::string_view name) {
        const auto at = std::ranges::find(a.named, name, &std::pair<std::string, Value>::first);
        return at == a.named.end() ? Value() : at->second;
    };
    const Value path = named("attribute");
    const bool by_attribute = a.positional.empty() && !path.is_missing();
    const Values items = truth(v) ? iterate(v, run.budget) : Values();
    if (!items.empty() && !by_attribute && a.positional.empty()) raise("map needs a filter or attribute=");
    Arguments rest;
    const Held held(run.budget, a.bytes());
    if (!a.positional.empty()) rest = {{a.positional.begin() + 1, a.positional.end()}, a.named};
    for (const Value &each : items) {
        out.push_back(by_attribute ? attribute_path(run, each, path, named("default"))
                                   : call_filter_by_name(run, a[0], each, rest));
    }
    return run.make.iterator(std::move(out));
}

// select, reject, selectattr, rejectattr: those items that a test holds for, or does not; without a test, truth is it.
template <bool by_attribute, bool wanted>
Value select(Interpreter &run, const Value &v, Args a) {
    constexpr size_t kTest = by_attribute ? 1 : 0;
    const Values items = truth(v) ? iterate(v, run.budget) : Values();
    if (by_attribute && a.positional.empty() && !items.empty()) raise("the name of an attribute is missing");
    const bool has_test = a.positional.size() > kTest;
    Arguments rest;
    const Held held(run.budget, a.bytes());
    if (has_test) rest = {{a.positional.begin() + kTest + 1, a.positional.end()}, a.named};
    Values out;
    for (const Value &each : items) {
        const Value tested = by_attribute ? attribute_path(run, each, a[0], Value()) : each;
        const bool holds = truth(has_test ? call_test_by_name(run, a[kTest], tested, rest) : tested);
        if (holds == wanted) out.push_back(each);
    }
    return run.make.iterator(std::move(out));
}

constexpr std::array kRows{
    Native{.name = "list", .call = to_list},
    Native{.name = "items", .call = items_filter},
    Native{.name = "join", .call = join, .parameters = {"d", "attribute"}},
    Native{.name = "first", .call = first},
    Native{.name = "last", .call = last},
    Native{.name = "reverse", .call = reverse},
    Native{.name = "sort", .call = sort, .parameters = {"reverse", "case_sensitive", "attribute"}},
    Native{.name = "dictsort", .call = dict_sort, .parameters = {"case_sensitive", "by", "reverse"}},
    Native{.name = "unique", .call = unique, .parameters = {"case_sensitive", "attribute"}},
    Native{.name = "min", .call = extreme<false>, .parameters = {"case_sensitive", "attribute"}},
    Native{.name = "max", .call = extreme<true>, .parameters = {"case_sensitive", "attribute"}},
    Native{.name = "sum", .call = sum, .parameters = {"attribute", "start"}},
    Native{.name = "batch", .call = batch, .parameters = {"linecount", "fill_with"}, .required = 1},
    Native{.name = "slice", .call = slice_filter, .parameters = {"slices", "fill_with"}, .required = 1},
    Native{
        .name = "groupby", .call = group_by, .parameters = {"attribute", "default", "case_sensitive"}, .required = 1},
    Native{.name = "map", .call = map, .takes_all = true},
    Native{.name = "select", .call = select<false, true>, .takes_all = true},
    Native{.name = "reject", .call = select<false, false>, .takes_all = true},
    Native{.name = "selectattr", .call = select<true, true>, .takes_all = true},
    Native{.name = "rejectattr", .call = select<true, false>, .takes_all = true},
};

}  // namespace

std::span<const Native> filters_sequence() { return kRows; }

}  // namespace ridge::text::jinja
