#include "text/jinja/functions.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "gguf/printable.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace ridge::text::jinja {

const Value Arguments::kMissing{};

int64_t Arguments::whole(size_t i, int64_t preset) const {
    const Value &v = (*this)[i];
    if (v.is_missing()) return preset;
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (!v.is_whole()) raise("argument {} is an integer, not '{}'", i + 1, type_name(v));
    return v.whole();
}

bool Arguments::truth(size_t i, bool preset) const { return has(i) ? jinja::truth((*this)[i]) : preset; }

std::string_view Arguments::text(size_t i, std::string_view preset) const {
    const Value &v = (*this)[i];
    if (v.is_missing()) return preset;
    if (v.is_undefined()) raise("{}", v.text().bytes());
    if (!v.is_string()) raise("argument {} is a string, not '{}'", i + 1, type_name(v));
    return v.text().bytes();
}

uint64_t Arguments::bytes() const {
    uint64_t total = positional.size() * sizeof(Value);
    for (const auto &[name, value] : named) total += sizeof(std::pair<std::string, Value>) + name.size();
    return total;
}

BoundNative::BoundNative(Budget *budget_, const Native &native_, Value self_)
    : Object(budget_, sizeof(Native)), native(native_), self(std::move(self_)) {
    if (self.object() != nullptr) depth = self.object()->depth + 1;
}

namespace {

const Native *find_in(std::initializer_list<std::span<const Native>> tables, std::string_view name) {
    for (const auto table : tables) {
        const auto row = std::ranges::find(table, name, &Native::name);
        if (row != table.end()) return &*row;
    }
    return nullptr;
}

std::string names_of(std::initializer_list<std::span<const Native>> tables) {
    std::vector<std::string_view> names;
    for (const auto table : tables) {
        for (const Native &row : table) names.push_back(row.name);
    }
    std::ranges::sort(names);
    return fmt::format("{}", fmt::join(names, ", "));
}

// What python's types have and the sandbox refuses, as it would change the value.
bool is_refused(const Value &v, std::string_view name) {
    constexpr std::string_view kList[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
    constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (v.is(Kind::list)) return std::ranges::find(kList, name) != std::end(kList);
    return v.is(Kind::dict) && std::ranges::find(kDict, name) != std::end(kDict);
}

// What python's types have besides and templates cannot use here.
bool is_unsupported(const Value &v, std::string_view name) {
    constexpr std::string_view kInteger[] = {"as_integer_ratio", "bit_count",  "bit_length", "conjugate",
                                             "denominator",      "from_bytes", "imag",       "is_integer",
                                             "numerator",        "real",       "to_bytes"};
    constexpr std::string_view kReal[] = {"as_integer_ratio", "conjugate", "fromhex", "hex", "imag",
                                          "is_integer",       "real"};
    constexpr std::string_view kString[] = {"casefold", "encode", "maketrans", "translate"};
    constexpr std::string_view kRange[] = {"start", "step", "stop"};
    const auto is_in = [&](std::span<const std::string_view> names) {
        return std::ranges::find(names, name) != names.end();
    };
    if (v.is_whole()) return is_in(kInteger);
    if (v.is(Kind::real)) return is_in(kReal);
    if (v.is_string()) return is_in(kString);
    return v.is(Kind::range) && is_in(kRange);
}

const Native *find_method(const Value &v, std::string_view name) {
    switch (v.kind()) {
        case Kind::string:
            return find_in({methods_string(), methods_string_tests()}, name);
        case Kind::dict:
            return find_in({methods_dict()}, name);
        case Kind::list:
            return find_in({methods_list()}, name);
        case Kind::tuple:
        case Kind::range:
            return name == "copy" ? nullptr : find_in({methods_list()}, name);
        case Kind::cycler:
            return find_in({methods_cycler()}, name);
        case Kind::loop:
            return find_in({methods_loop()}, name);
        default:
            return nullptr;
    }
}

Value loop_attribute(Interpreter &run, const Loop &loop, std::string_view name) {
    const auto index = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(loop.items.size());
    if (name == "index") return Value::integer(index + 1);
    if (name == "index0") return Value::integer(index);
    if (name == "revindex") return Value::integer(size - index);
    if (name == "revindex0") return Value::integer(size - index - 1);
    if (name == "first") return Value::boolean(index == 0);
    if (name == "last") return Value::boolean(index + 1 >= size);
    if (name == "length") return Value::integer(size);
    if (name == "depth") return Value::integer(loop.outer_loops + 1);
    if (name == "depth0") return Value::integer(loop.outer_loops);
    if (name == "previtem") {
        return index == 0 ? run.make.undefined("there is no previous item") : loop.items[loop.index - 1];
    }
    if (name == "nextitem") {
        return index + 1 >= size ? run.make.undefined("there is no next item") : loop.items[loop.index + 1];
    }
    return {};
}

Value macro_attribute(Interpreter &run, const Macro &macro, std::string_view name) {
    const Signature &s = *macro.signature;
    if (name == "name") return s.name.empty() ? Value::none() : run.make.string(s.name, true);
    if (name == "caller") return Value::boolean(s.uses_caller);
    if (name == "catch_kwargs") return Value::boolean(s.uses_kwargs);
    if (name == "catch_varargs") return Value::boolean(s.uses_varargs);
    if (name != "arguments") return {};
    Values names;
    for (const Parameter &p : s.parameters) names.push_back(run.make.string(p.text, true));
    return run.make.tuple(std::move(names));
}

}  // namespace

const Native *find_filter(std::string_view name) {
    return find_in({filters_text(), filters_sequence(), filters_value()}, name);
}
const Native *find_test(std::string_view name) { return find_in({tests()}, name); }
const Native *find_global(std::string_view name) { return find_in({globals()}, name); }

std::string no_such_filter(std::string_view name) {
    return fmt::format("there is no filter '{}'; there are {}", gguf::printable(name),
                       names_of({filters_text(), filters_sequence(), filters_value()}));
}

std::string no_such_test(std::string_view name) {
    return fmt::format("there is no test '{}'; there are {}", gguf::printable(name), names_of({tests()}));
}

Value find_attribute(Interpreter &run, const Value &value, std::string_view name) {
    switch (value.kind()) {
        case Kind::name_space: {
            const auto &attributes = static_cast<const Namespace &>(*value.object()).attributes;
            const auto at = attributes.find(name);
            return at == attributes.end() ? Value() : at->second;
        }
        case Kind::loop:
            if (Value v = loop_attribute(run, static_cast<const Loop &>(*value.object()), name); !v.is_missing()) {
                return v;
            }
            break;
        case Kind::macro:
            return macro_attribute(run, static_cast<const Macro &>(*value.object()), name);
        case Kind::cycler: {
            const auto &cycler = static_cast<const Cycler &>(*value.object());
            if (name == "current") return cycler.items[cycler.position];
            break;
        }
        case Kind::tuple:
            // What groupby makes.
            if (value.sequence().type == std::string_view("_GroupTuple")) {
                if (name == "grouper") return value.sequence().items[0];
                if (name == "list") return value.sequence().items[1];
            }
            break;
        default:
            break;
    }
    if (is_refused(value, name)) {
        return run.make.undefined(fmt::format("the attribute '{}' of a '{}' would change it, which templates may not",
                                              gguf::printable(name), type_name(value)));
    }
    if (is_unsupported(value, name)) {
        raise("templates cannot use the attribute '{}' of a '{}' here", name, type_name(value));
    }
    const Native *method = find_method(value, name);
    if (method == nullptr) return {};
    return Value::of(Kind::native, std::make_shared<BoundNative>(&run.budget, *method, value));
}

Value call_native(Interpreter &run, const Native &native, const Value &value, Arguments arguments) {
    if (native.takes_all) return native.call(run, value, arguments);
    size_t count = 0;
    while (count < kMaxParameters && !native.parameters[count].empty()) ++count;
    if (arguments.positional.size() > count) {
        raise("{} takes at most {} argument(s), not {}", native.name, count, arguments.positional.size());
    }
    const size_t by_position = arguments.positional.size();
    arguments.positional.resize(count);
    for (auto &[name, v] : arguments.named) {
        const auto at = static_cast<size_t>(std::ranges::find(native.parameters, name) - native.parameters.begin());
        if (at >= count || native.by_position) {
            raise("{} takes no argument named '{}'", native.name, gguf::printable(name));
        }
        if (at < by_position) raise("{} is given its argument '{}' twice", native.name, name);
        arguments.positional[at] = std::move(v);
    }
    for (size_t i = 0; i < native.required; ++i) {
        if (!arguments.has(i)) raise("{} needs its argument '{}'", native.name, native.parameters[i]);
    }
    return native.call(run, value, arguments);
}

namespace {

Value call_by_name(Interpreter &run, const Native *(*find)(std::string_view), std::string (*none)(std::string_view),
                   const Value &name, const Value &value, Arguments arguments) {
    const std::string_view text = name.is_string() ? std::string_view(name.text()) : std::string_view("?");
    const Native *native = find(text);
    if (native == nullptr) raise("{}", none(text));
    // A filter may be map, whose arguments name another.
    const Interpreter::Level level(run);
    const Held held(run.budget, arguments.bytes());
    run.budget.work(arguments.bytes());
    return call_native(run, *native, value, std::move(arguments));
}

}  // namespace

Value call_filter_by_name(Interpreter &run, const Value &name, const Value &value, Arguments arguments) {
    return call_by_name(run, find_filter, no_such_filter, name, value, std::move(arguments));
}

Value call_test_by_name(Interpreter &run, const Value &name, const Value &value, Arguments arguments) {
    return call_by_name(run, find_test, no_such_test, name, value, std::move(arguments));
}

}  // namespace ridge::text::jinja
