// The functions that templates may use: filters, tests, methods of values, global functions. Each is one row of a
// table; the next is one more row.
//
// A function takes a value (what a filter filters, what a test tests, what a method belongs to) and arguments, which
// are bound to the parameters of its row as python binds them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ridge::text::jinja {

class Interpreter;

class Arguments {
  public:
    Values positional;
    std::vector<std::pair<std::string, Value>> named;

    // After binding: by the index of the parameter; missing where it was not given.
    const Value &operator[](size_t i) const { return i < positional.size() ? positional[i] : kMissing; }
    bool has(size_t i) const { return !(*this)[i].is_missing(); }
    // As python would take it for that parameter; raises where it has another type.
    int64_t whole(size_t i, int64_t preset) const;
    bool truth(size_t i, bool preset) const;
    std::string_view text(size_t i, std::string_view preset) const;
    // What a copy takes.
    uint64_t bytes() const;

  private:
    static const Value kMissing;
};

constexpr size_t kMaxParameters = 6;

struct Native {
    std::string_view name;
    Value (*call)(Interpreter &run, const Value &value, const Arguments &arguments);
    std::array<std::string_view, kMaxParameters> parameters{};  // an empty name: none further
    size_t required = 0;                                        // so many of them must be given
    bool takes_all = false;                                     // takes arguments as they come, unbound
    bool by_position = false;                                   // python's own methods take no names
};

// A native function with the value it belongs to.
struct BoundNative : Object {
    BoundNative(Budget *budget_, const Native &native_, Value self_);
    const Native &native;
    Value self;
};

// Null where there is none of this name.
const Native *find_filter(std::string_view name);
const Native *find_test(std::string_view name);
const Native *find_global(std::string_view name);
// "there is no filter 'x'; there are ..."
std::string no_such_filter(std::string_view name);
std::string no_such_test(std::string_view name);

// An attribute of the value that python's type has, and that stands before the items of a dict. Missing where there is
// none; undefined, with the reason, for one that the sandbox refuses. Raises for one that templates cannot use.
Value find_attribute(Interpreter &run, const Value &value, std::string_view name);

// Binds and calls.
Value call_native(Interpreter &run, const Native &native, const Value &value, Arguments arguments);

// As map, select and their like do.
Value call_filter_by_name(Interpreter &run, const Value &name, const Value &value, Arguments arguments);
Value call_test_by_name(Interpreter &run, const Value &name, const Value &value, Arguments arguments);

// The tables, each in the file of its name.
std::span<const Native> filters_text();
std::span<const Native> filters_sequence();
std::span<const Native> filters_value();
std::span<const Native> tests();
std::span<const Native> globals();
std::span<const Native> methods_string();
std::span<const Native> methods_string_tests();
std::span<const Native> methods_dict();
std::span<const Native> methods_list();
std::span<const Native> methods_cycler();
std::span<const Native> methods_loop();

}  // namespace ridge::text::jinja
