// str(), repr() and json.dumps().
#include <algorithm>
#include <cmath>

#include "core/utf8.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {

namespace {

std::string hex_escape(char32_t c) {
    const auto code = static_cast<uint32_t>(c);
    return code < 0x100     ? fmt::format("\\x{:02x}", code)
           : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
}

// What repr() and JSON put in the place of a character; empty: nothing.
std::string repr_escape(char32_t c, char quote) {
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (c == '\\') return "\\\\";
    if (c == static_cast<char32_t>(quote)) return std::string("\\") + quote;
    if (c == ' ' || c == kIllFormed || is_a(CharacterClass::printable, c)) return {};
    return hex_escape(c);
}

std::string json_escape(char32_t c, bool ensure_ascii) {
    switch (c) {
        case '"':
            return "\\\"";
        case '\\':
            return "\\\\";
        case '\n':
            return "\\n";
        case '\r':
            return "\\r";
        case '\t':
            return "\\t";
        case '\f':
            return "\\f";
        case '\b':
            return "\\b";
        default:
            break;
    }
    if (c >= 0x20 && (c < 0x7F || !ensure_ascii || c == kIllFormed)) return {};
    const auto code = static_cast<uint32_t>(c);
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
}

void append_string_repr(Text &out, const Text &text, Budget &budget) {
    const std::string_view s = text;
    budget.work(s.size() * 16);  // asks of each character whether it is printable
    const bool has_single = s.find('\'') != std::string_view::npos;
    const char quote = has_single && s.find('"') == std::string_view::npos ? '"' : '\'';
    out.append({&quote, 1}, false);
    size_t from = 0;
    for (size_t at = 0; at < s.size();) {
        const Character c = character_at(s.substr(at));
        if (const std::string escape = repr_escape(c.code, quote); !escape.empty()) {
            out.append(text, from, at);
            out.append(escape, text.from_template(at));
            from = at + c.length;
        }
        at += c.length;
    }
    out.append(text, from, s.size());
    out.append({&quote, 1}, false);
}

void append_items_repr(Text &out, const Values &items, std::string_view open, std::string_view close, Budget &budget) {
    out.append(open, false);
    for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out.append(", ", false);
        append_repr(out, items[i], budget);
    }
    out.append(close, false);
}

void append_sequence_repr(Text &out, const Value &v, Budget &budget) {
    const Sequence &s = v.sequence();
    switch (v.kind()) {
        case Kind::list:
            return append_items_repr(out, s.items, "[", "]", budget);
        case Kind::tuple:
            return append_items_repr(out, s.items, "(", s.items.size() == 1 ? ",)" : ")", budget);
        case Kind::view:
            return append_items_repr(out, s.items, fmt::format("{}([", s.type), "])", budget);
        case Kind::range:
            return out.append(s.by == 1 ? fmt::format("range({}, {})", s.start, s.stop)
                                        : fmt::format("range({}, {}, {})", s.start, s.stop, s.by),
                              true);
        default:
            return out.append(fmt::format("<{} object>", s.type), true);
    }
}

}  // namespace

void append_repr(Text &out, const Value &v, Budget &budget) {
    budget.step();
    if (v.is_sequence()) return append_sequence_repr(out, v, budget);
    switch (v.kind()) {
        case Kind::undefined:
            return out.append("Undefined", true);
        case Kind::none:
            return out.append("None", true);
        case Kind::boolean:
            return out.append(v.boolean() ? "True" : "False", true);
        case Kind::integer:
            return out.append(fmt::format("{}", v.whole()), true);
        case Kind::real:
            return out.append(real_to_string(v.number()), true);
        case Kind::string:
            if (v.string().is_markup) out.append("Markup(", false);
            append_string_repr(out, v.text(), budget);
            if (v.string().is_markup) out.append(")", false);
            return;
        case Kind::dict: {
            out.append("{", false);
            bool first = true;
            for (const auto &[key, value] : v.dict().entries) {
                if (!std::exchange(first, false)) out.append(", ", false);
                append_repr(out, key, budget);
                out.append(": ", false);
                append_repr(out, value, budget);
            }
            return out.append("}", false);
        }
        default:
            return out.append(fmt::format("<{} object>", type_name(v)), true);
    }
}

void append_ascii(Text &out, const Value &v, Budget &budget) {
    Text text(&budget);
    append_repr(text, v, budget);
    const std::string_view s = text;
    budget.work(s.size() * 4);
    size_t from = 0;
    for (size_t at = 0; at < s.size();) {
        const Character c = character_at(s.substr(at));
        if (c.code >= 0x80 && c.code != kIllFormed) {
            out.append(text, from, at);
            out.append(hex_escape(c.code), text.from_template(at));
            from = at + c.length;
        }
        at += c.length;
    }
    out.append(text, from, s.size());
}

void append_str(Text &out, const Value &v, Budget &budget) {
    if (v.is_undefined() || v.is_missing()) return;
    if (v.is_string()) {
        budget.work(v.text().size());
        return out.append(v.text());
    }
    append_repr(out, v, budget);
}

namespace {

class JsonWriter {
  public:
    JsonWriter(const JsonOptions &options, Budget &budget) : options_(options), budget_(budget), out_(&budget) {}

    Value run(const Value &v) {
        write(v, 0);
        Text text(&budget_);
        text.append(out_.bytes(), !has_data_);
        return Maker(budget_).string(std::move(text));
    }

  private:
    void put(std::string_view s) { out_.append(s, true); }

    void line(size_t level) {
        if (!options_.has_indent) return;
        put("\n");
        for (size_t i = 0; i < level; ++i) put(options_.indent);
    }

    void string(const Text &text) {
        has_data_ = has_data_ || !text.all_from_template();
        const std::string_view s = text;
        budget_.work(s.size() * 2);
        put("\"");
        size_t from = 0;
        for (size_t at = 0; at < s.size();) {
            const Character c = character_at(s.substr(at));
            if (const std::string escape = json_escape(c.code, options_.ensure_ascii); !escape.empty()) {
                put(s.substr(from, at - from));
                put(escape);
                from = at + c.length;
            }
            at += c.length;
        }
        put(s.substr(from));
        put("\"");
    }

    static std::string number(const Value &v) {
        if (v.is(Kind::boolean)) return v.boolean() ? "true" : "false";
        if (v.is(Kind::integer)) return fmt::format("{}", v.whole());
        if (std::isnan(v.number())) return "NaN";
        if (std::isinf(v.number())) return v.number() < 0 ? "-Infinity" : "Infinity";
        return real_to_string(v.number());
    }

    void key(const Value &v) {
        if (v.is_string()) return string(v.text());
        if (!v.is_number() && !v.is(Kind::none)) {
            raise("keys of JSON are strings, numbers, booleans or none, not '{}'", type_name(v));
        }
        put("\"");
        put(v.is(Kind::none) ? "null" : number(v));
        put("\"");
    }

    void write(const Value &v, size_t level) {
        budget_.step();
        if (v.is_string()) return string(v.text());
        if (v.is(Kind::none)) return put("null");
        if (v.is_number()) return put(number(v));
        if (v.is(Kind::list) || v.is(Kind::tuple)) return array(v.sequence().items, level);
        if (v.is(Kind::dict)) return object(v.dict(), level);
        raise("an object of type '{}' cannot be written as JSON", type_name(v));
    }

    void array(const Values &items, size_t level) {
        put("[");
        for (size_t i = 0; i < items.size(); ++i) {
            if (i > 0) put(options_.item_separator);
            line(level + 1);
            write(items[i], level + 1);
        }
        if (!items.empty()) line(level);
        put("]");
    }

    void object(const Dict &dict, size_t level) {
        std::vector<const std::pair<Value, Value> *> entries;
        for (const auto &entry : dict.entries) entries.push_back(&entry);
        if (options_.sort_keys) {
            std::ranges::stable_sort(entries,
                                     [&](const auto *a, const auto *b) { return less(a->first, b->first, budget_); });
        }
        put("{");
        for (size_t i = 0; i < entries.size(); ++i) {
            if (i > 0) put(options_.item_separator);
            line(level + 1);
            key(entries[i]->first);
            put(options_.key_separator);
            write(entries[i]->second, level + 1);
        }
        if (!entries.empty()) line(level);
        put("}");
    }

    const JsonOptions &options_;
    Budget &budget_;
    Text out_;
    bool has_data_ = false;
};

}  // namespace

Value to_json(const Value &v, const JsonOptions &options, Budget &budget) { return JsonWriter(options, budget).run(v); }

}  // namespace ridge::text::jinja
