// What python's operators and built-in functions do to values.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {

class Interpreter;

bool truth(const Value &v);
bool equal(const Value &a, const Value &b, Budget &budget);
// a < b; raises for values that have no order.
bool less(const Value &a, const Value &b, Budget &budget);
bool compare(Comparison op, const Value &a, const Value &b, Budget &budget);
bool contains(const Value &container, const Value &item, Budget &budget);

// len(); raises where there is none.
int64_t length(const Value &v, Budget &budget);
// What a loop over the value goes through; an iterator is used up. Raises for what cannot be gone through.
Values iterate(const Value &v, Budget &budget);
bool is_iterable(const Value &v);

// str(), repr() and ascii(). Numbers and the like are the template's; the punctuation of lists is data.
void append_str(Text &out, const Value &v, Budget &budget);
void append_repr(Text &out, const Value &v, Budget &budget);
void append_ascii(Text &out, const Value &v, Budget &budget);  // ascii(): repr() without other characters
Value to_str(const Value &v, Budget &budget);                  // strings stay as they are

// Markup (what `safe` and `escape` make) keeps its kind; other text has & < > ' " written as entities.
void append_escaped(Text &out, const Value &v, Budget &budget);

Value arithmetic(Interpreter &run, Arithmetic op, const Value &a, const Value &b);

// v.name and v[key]: undefined where there is none, as jinja looks them up (python's attributes before items).
Value attribute(Interpreter &run, const Value &v, std::string_view name);
Value item(Interpreter &run, const Value &v, const Value &key);
Value slice(Interpreter &run, const Value &v, const Value &start, const Value &stop, const Value &step);

// The text of `of` from character `begin` on, as a string of the same kind.
Value substring(const Value &of, size_t begin_byte, size_t end_byte, Budget &budget);

struct JsonOptions {
    bool ensure_ascii = false, sort_keys = false;
    bool has_indent = false;
    std::string indent;  // what one level adds
    std::string item_separator = ", ", key_separator = ": ";
};
// json.dumps(); data unless all strings in it are the template's.
Value to_json(const Value &v, const JsonOptions &options, Budget &budget);

}  // namespace ridge::text::jinja
