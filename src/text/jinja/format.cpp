#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "gguf/printable.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/strings.h"

namespace ridge::text::jinja {

namespace {

// "%-5s of %(name)s": reads the format from the left, takes the values one after the other.
class Percent {
  public:
    Percent(Interpreter &run, const Value &text, const Values &values, const Value &value)
        : run_(run),
          text_(text.text()),
          s_(text.text()),
          is_markup_(text.string().is_markup),
          values_(values),
          value_(value),
          out_(&run.budget) {}

    Value format() {
        run_.budget.work(s_.size());
        while (at_ < s_.size()) {
            const size_t percent = std::min(s_.find('%', at_), s_.size());
            out_.append(text_, at_, percent);
            at_ = percent + 1;
            if (percent < s_.size()) conversion();
        }
        if (next_ < values_.size() && !may_stay_unused()) raise("not all values of a format are used");
        return run_.make.string(std::move(out_), is_markup_);
    }

  private:
    // As python has it: what has items by key or index.
    bool may_stay_unused() const {
        return value_.is(Kind::dict) || value_.is(Kind::list) || value_.is(Kind::range) || value_.is_undefined();
    }

    char peek() const {
        if (at_ >= s_.size()) raise("the format ends inside a conversion");
        return s_[at_];
    }

    const Value &next_value() {
        if (next_ >= values_.size()) raise("there are not enough values for the format");
        return values_[next_++];
    }

    int64_t number() {
        if (peek() == '*') {
            ++at_;
            const Value &v = next_value();
            if (!v.is_whole() || v.whole() > INT32_MAX || v.whole() < -INT32_MAX)
                raise("* in a format needs an integer");
            return v.whole();
        }
        int64_t n = 0;
        for (; peek() >= '0' && peek() <= '9'; ++at_) {
            n = n * 10 + (peek() - '0');
            if (n > INT32_MAX) raise("too many digits in a format");
        }
        return n;
    }

    void conversion() {
        const size_t begin = at_ - 1;
        Value named;
        if (peek() == '(') {
            const size_t close = s_.find(')', at_);
            if (close == std::string_view::npos) raise("the format ends inside a name");
            if (!value_.is(Kind::dict)) raise("a format with names needs a dict");
            const std::string_view name = s_.substr(at_ + 1, close - at_ - 1);
            const Value *found = value_.dict().find(string_key(name));
            if (found == nullptr) raise("the format names '{}', which is not there", gguf::printable(name));
            named = *found;
            at_ = close + 1;
        }
        FormatSpec spec;
        spec.align = '>';
        for (; std::string_view("-+ #0").find(peek()) < 5; ++at_) {
            if (peek() == '-') spec.align = '<';
            if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
            if (peek() == '#') spec.alternate = true;
            if (peek() == '0') spec.fill = "0";
        }
        spec.width = number();
        if (spec.width < 0) {
            spec.width = -spec.width;
            spec.align = '<';
        }
        if (peek() == '.') {
            ++at_;
            spec.precision = std::max<int64_t>(number(), 0);
        }
        while (std::string_view("hlL").find(peek()) < 3) ++at_;
        spec.type = peek();
        ++at_;
        if (spec.type == '%') return out_.append("%", text_.from_template(begin));
        convert(named.is_missing() ? next_value() : named, spec);
    }

    void convert(const Value &v, FormatSpec spec) {
        if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
            Text text(&run_.budget);
            if (spec.type == 'r') {
                append_repr(text, v, run_.budget);
            } else if (spec.type == 'a') {
                append_ascii(text, v, run_.budget);
            } else if (is_markup_) {
                append_escaped(text, v, run_.budget);
            } else {
                append_str(text, v, run_.budget);
            }
            spec.type = 's';
            spec.fill = " ";
            spec.sign = '-';
            spec.alternate = false;
            return append_formatted(out_, run_.make.string(std::move(text)), spec, run_.budget);
        }
        if (std::string_view("diuxXoeEfFgG").find(spec.type) >= 12) {
            raise("'%{}' is no conversion that templates can use", gguf::printable({&spec.type, 1}));
        }
        if (v.is_undefined()) raise("{}", v.text().bytes());
        if (!v.is_number()) raise("%{} needs a number, not '{}'", spec.type, type_name(v));
        if (spec.fill == "0" && spec.align == '>') spec.align = '=';
        if (spec.align == '<') spec.fill = " ";
        if (std::string_view("diu").find(spec.type) < 3) {
            spec.type = 'd';
            const auto whole = v.is_whole() ? std::optional(v.whole()) : exact_integer(std::trunc(v.number()));
            if (!whole) raise("%d needs a finite number");
            // A precision is the least number of digits.
            if (spec.precision > 0) {
                Text digits(&run_.budget);
                FormatSpec exact;
                exact.sign = spec.sign;
                exact.fill = "0";
                exact.align = '=';
                exact.width = spec.precision + (*whole < 0 || spec.sign != '-' ? 1 : 0);
                append_formatted(digits, Value::integer(*whole), exact, run_.budget);
                spec.precision = -1;
                spec.type = 's';
                spec.sign = '-';
                spec.alternate = false;
                spec.align = spec.align == '=' ? '>' : spec.align;
                spec.fill = " ";
                return append_formatted(out_, run_.make.string(std::move(digits)), spec, run_.budget);
            }
            spec.precision = -1;
            return append_formatted(out_, Value::integer(*whole), spec, run_.budget);
        }
        append_formatted(out_, v, spec, run_.budget);
    }

    Interpreter &run_;
    const Text &text_;
    std::string_view s_;
    bool is_markup_;
    const Values &values_;
    const Value &value_;
    Text out_;
    size_t at_ = 0, next_ = 0;
};

// "{} of {name.part[0]!r:>5}".
class Braces {
  public:
    Braces(Interpreter &run, const Arguments &arguments, bool is_markup)
        : run_(run), arguments_(arguments), is_markup_(is_markup) {}

    // Fields in specifications are formatted too, but not those in them.
    void format(Text &out, const Text &text, int depth) {
        if (depth > 2) raise("fields lie too deep in one another");
        const std::string_view s = text;
        run_.budget.work(s.size());
        for (size_t at = 0; at < s.size();) {
            const size_t brace = std::min(s.find_first_of("{}", at), s.size());
            out.append(text, at, brace);
            if (brace == s.size()) return;
            at = brace + 1;
            if (at < s.size() && s[at] == s[brace]) {
                out.append(text, brace, at++);
            } else if (s[brace] == '}') {
                raise("a single '}}' stands in the format");
            } else {
                const size_t close = field_end(s, at);
                field(out, text, at, close, depth);
                at = close + 1;
            }
        }
    }

  private:
    static size_t field_end(std::string_view s, size_t at) {
        int open = 1;
        for (; at < s.size(); ++at) {
            if (s[at] == '{') ++open;
            if (s[at] == '}' && --open == 0) return at;
        }
        raise("a field of the format has no end; '}}' was expected");
    }

    void field(Text &out, const Text &text, size_t begin, size_t end, int depth) {
        const std::string_view s = std::string_view(text).substr(begin, end - begin);
        const size_t colon = std::min(s.find(':'), s.size());
        std::string_view name = s.substr(0, colon);
        char conversion = '\0';
        if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
            if (mark + 2 != name.size()) raise("behind '!' stands one of s, r, a");
            conversion = name[mark + 1];
            name = name.substr(0, mark);
        }
        Value v = value(name);
        Text spec_text(&run_.budget), inner(&run_.budget);
        if (colon < s.size()) {
            inner.append(text, begin + colon + 1, end);
            format(spec_text, inner, depth + 1);
        }
        if (conversion != '\0') {
            if (std::string_view("sra").find(conversion) >= 3) raise("behind '!' stands one of s, r, a");
            Text converted(&run_.budget);
            const auto append = conversion == 's' ? append_str : conversion == 'r' ? append_repr : append_ascii;
            append(converted, v, run_.budget);
            v = run_.make.string(std::move(converted));
        }
        if (is_markup_ && !v.is_number()) {
            Text escaped(&run_.budget);
            append_escaped(escaped, v, run_.budget);
            v = run_.make.string(std::move(escaped), true);
        }
        if (spec_text.empty()) return append_str(out, v, run_.budget);
        append_formatted(out, v, parse_format_spec(spec_text), run_.budget);
    }

    Value value(std::string_view name) {
        const size_t first = std::min(name.find_first_of(".["), name.size());
        Value v = argument(name.substr(0, first));
        name.remove_prefix(first);
        while (!name.empty()) {
            if (name[0] == '.') {
                const size_t end = std::min(name.find_first_of(".[", 1), name.size());
                v = attribute(run_, v, name.substr(1, end - 1));
                name.remove_prefix(end);
            } else {
                const size_t end = name.find(']');
                if (name[0] != '[' || end == std::string_view::npos) raise("']' is missing in a field of the format");
                const std::string_view key = name.substr(1, end - 1);
                const auto index = is_number(key) ? parse_integer(key) : std::nullopt;
                v = item(run_, v, index ? Value::integer(*index) : run_.make.string(key, true));
                name.remove_prefix(end + 1);
            }
        }
        return v;
    }

    static bool is_number(std::string_view s) {
        return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos;
    }

    Value argument(std::string_view name) {
        if (name.empty() || is_number(name)) {
            (name.empty() ? counts_ : numbers_) = true;
            if (counts_ && numbers_) raise("fields are numbered either all or not at all");
            const auto i = name.empty() ? static_cast<int64_t>(next_++) : *parse_integer(name);
            if (std::cmp_greater_equal(i, arguments_.positional.size())) raise("the format has no argument {}", i);
            return arguments_.positional[static_cast<size_t>(i)];
        }
        const auto at = std::ranges::find(arguments_.named, name, &std::pair<std::string, Value>::first);
        run_.budget.step(1 + arguments_.named.size());
        if (at == arguments_.named.end()) raise("the format names '{}', which is not there", gguf::printable(name));
        return at->second;
    }

    Interpreter &run_;
    const Arguments &arguments_;
    bool is_markup_;
    size_t next_ = 0;
    bool counts_ = false, numbers_ = false;
};

}  // namespace

Value format_percent(Interpreter &run, const Value &text, const Values &values, const Value &value) {
    return Percent(run, text, values, value).format();
}

Value format_braces(Interpreter &run, const Value &text, const Arguments &arguments) {
    Text out(&run.budget);
    Braces(run, arguments, text.string().is_markup).format(out, text.text(), 0);
    return run.make.string(std::move(out), text.string().is_markup);
}

}  // namespace ridge::text::jinja
