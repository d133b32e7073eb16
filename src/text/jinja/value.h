// Values of a template's run, with python's meaning.
//
// Strings, lists, tuples and dicts never change once made: the sandbox refuses every method that would change one. What
// changes are namespaces, loops, cyclers, joiners and the position of iterators. Since only namespaces and the scopes
// that macros keep can refer to themselves, the interpreter holds all of those and empties them at the end.
//
// A value inside values knows how deep it is (`depth`), so that no walk and no destructor runs out of stack.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"

namespace ridge::text::jinja {

enum class Kind : uint8_t {
    missing,    // an argument that was not given; no template sees one
    undefined,  // jinja's Undefined; its text is the error that its use raises
    none,
    boolean,
    integer,
    real,
    string,
    list,
    tuple,
    range,
    view,      // keys(), values(), items() of a dict
    iterator,  // what is gone through once: generators and reversed lists
    dict,
    name_space,
    loop,
    cycler,
    joiner,
    macro,
    native,  // a global function or a method bound to a value
};

// What lies behind a value. Its memory counts while it lives.
struct Object {
    Object(Budget *budget_, uint64_t bytes);
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;
    virtual ~Object();
    // Forgets what it refers to: objects that can come to refer to themselves are told to at the end of a run.
    virtual void drop() {}
    void grow(uint64_t bytes);

    Budget *budget;  // null for the constants of a template
    uint64_t held;
    uint32_t depth = 0;
};

struct String;
struct Sequence;
struct Dict;

class Value {
  public:
    Value() = default;
    static Value none() { return Value(Kind::none); }
    static Value boolean(bool b);
    static Value integer(int64_t i);
    static Value real(double d);
    static Value of(Kind kind, std::shared_ptr<Object> object);

    Kind kind() const { return kind_; }
    bool is(Kind kind) const { return kind_ == kind; }
    bool is_missing() const { return kind_ == Kind::missing; }
    bool is_undefined() const { return kind_ == Kind::undefined; }
    bool is_string() const { return kind_ == Kind::string; }
    // list, tuple, range, view or iterator
    bool is_sequence() const { return kind_ >= Kind::list && kind_ <= Kind::iterator; }
    bool is_number() const { return kind_ >= Kind::boolean && kind_ <= Kind::real; }
    bool is_whole() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }

    // Preconditions: the value is of that kind; whole: a boolean or an integer; number: either or a real.
    bool boolean() const { return integer_ != 0; }
    int64_t whole() const { return integer_; }
    double number() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
    const String &string() const;
    const Text &text() const;
    Sequence &sequence() const;
    const Dict &dict() const;
    Object *object() const { return object_.get(); }
    const std::shared_ptr<Object> &shared() const { return object_; }

  private:
    explicit Value(Kind kind) : kind_(kind) {}

    Kind kind_ = Kind::missing;
    union {
        int64_t integer_ = 0;
        double real_;
    };
    std::shared_ptr<Object> object_;
};

using Values = std::vector<Value>;

struct String : Object {
    String(Budget *budget_, Text text_, bool is_markup_);
    Text text;
    bool is_markup;  // the filter `safe` made it: adding to it escapes
};

struct Sequence : Object {
    Sequence(Budget *budget_, Values items_, const char *type_);
    Values items;
    const char *type;                     // as python names it: "list", "generator", "dict_keys"
    size_t next = 0;                      // iterator: what was not taken yet
    int64_t start = 0, stop = 0, by = 1;  // range
};

struct Dict : Object {
    explicit Dict(Budget *budget_) : Object(budget_, 0) {}

    // `key` is what key_of makes of a key.
    const Value *find(std::string_view key) const;

    std::vector<std::pair<Value, Value>> entries;  // in order of insertion
    std::map<std::string, size_t, std::less<>> index;
};

struct Namespace : Object {
    using Object::Object;
    void drop() override { attributes.clear(); }
    std::map<std::string, Value, std::less<>> attributes;
};

struct Cycler : Object {
    using Object::Object;
    Values items;
    size_t position = 0;
};

struct Joiner : Object {
    using Object::Object;
    Value separator;
    bool used = false;
};

// Makes values; all of them count against its budget.
class Maker {
  public:
    explicit Maker(Budget &budget) : budget_(&budget) {}

    Value undefined(std::string_view message) const;
    Value string(Text text, bool is_markup = false) const;
    Value string(std::string_view text, bool from_template) const;
    Value list(Values items) const { return sequence(Kind::list, std::move(items), "list"); }
    Value tuple(Values items) const { return sequence(Kind::tuple, std::move(items), "tuple"); }
    Value iterator(Values items, const char *type = "generator") const {
        return sequence(Kind::iterator, std::move(items), type);
    }
    Value sequence(Kind kind, Values items, const char *type) const;
    Value dict() const;
    // Into a dict that no one else has yet; a key that is there keeps its place.
    void insert(Value &dict, Value key, Value value) const;

    // Strings are data but where `trusted` says otherwise; all are the template's where `all_trusted`.
    Value from_json(const Json &json, TrustedString trusted, bool all_trusted) const;

  private:
    Value convert(const Json &json, std::string_view key, TrustedString trusted, bool all_trusted,
                  uint32_t depth) const;

    Budget *budget_;
};

constexpr uint32_t kMaxValueDepth = 200;

// The depth of what holds `value`; raises past kMaxValueDepth.
uint32_t depth_above(const Value &value);

// Bytes that are equal for equal keys only; raises for what cannot be a key (a list, a dict).
std::string key_of(const Value &key, Budget &budget);
inline std::string string_key(std::string_view name) { return 's' + std::string(name); }

// As python names it: "str", "dict", "NoneType".
std::string_view type_name(const Value &value);

}  // namespace ridge::text::jinja
