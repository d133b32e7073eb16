#include "text/jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "text/jinja/number.h"

namespace ridge::text::jinja {

namespace {

constexpr uint64_t kObjectBytes = 64;  // a control block, a virtual table, the fields
constexpr uint64_t kEntryBytes = 128;  // of a dict: two values, a node of its index

}  // namespace

uint32_t depth_above(const Value &value) {
    const uint32_t depth = value.object() == nullptr ? 0 : value.object()->depth + 1;
    if (depth > kMaxValueDepth) {
        throw Trouble{ErrorKind::limit, fmt::format("values lie more than {} deep in one another", kMaxValueDepth)};
    }
    return depth;
}

Object::Object(Budget *budget_, uint64_t bytes) : budget(budget_), held(kObjectBytes + bytes) {
    if (budget != nullptr) budget->hold(held);
}

Object::~Object() {
    if (budget != nullptr) budget->release(held);
}

void Object::grow(uint64_t bytes) {
    if (budget == nullptr) return;
    budget->hold(bytes);
    held += bytes;
}

Value Value::boolean(bool b) {
    Value v(Kind::boolean);
    v.integer_ = b;
    return v;
}

Value Value::integer(int64_t i) {
    Value v(Kind::integer);
    v.integer_ = i;
    return v;
}

Value Value::real(double d) {
    Value v(Kind::real);
    v.real_ = d;
    return v;
}

Value Value::of(Kind kind, std::shared_ptr<Object> object) {
    Value v(kind);
    v.object_ = std::move(object);
    return v;
}

const String &Value::string() const { return static_cast<const String &>(*object_); }
const Text &Value::text() const { return string().text; }
Sequence &Value::sequence() const { return static_cast<Sequence &>(*object_); }
const Dict &Value::dict() const { return static_cast<const Dict &>(*object_); }

String::String(Budget *budget_, Text text_, bool is_markup_)
    : Object(budget_, 0), text(std::move(text_)), is_markup(is_markup_) {}

Sequence::Sequence(Budget *budget_, Values items_, const char *type_)
    : Object(budget_, items_.size() * sizeof(Value)), items(std::move(items_)), type(type_) {
    for (const Value &item : items) depth = std::max(depth, depth_above(item));
}

const Value *Dict::find(std::string_view key) const {
    const auto at = index.find(key);
    return at == index.end() ? nullptr : &entries[at->second].second;
}

Value Maker::undefined(std::string_view message) const {
    Value text = string(message, true);
    return Value::of(Kind::undefined, text.shared());
}

Value Maker::string(Text text, bool is_markup) const {
    return Value::of(Kind::string, std::make_shared<String>(budget_, std::move(text), is_markup));
}

Value Maker::string(std::string_view text, bool from_template) const {
    Text t(budget_);
    t.append(text, from_template);
    return string(std::move(t));
}

Value Maker::sequence(Kind kind, Values items, const char *type) const {
    return Value::of(kind, std::make_shared<Sequence>(budget_, std::move(items), type));
}

Value Maker::dict() const { return Value::of(Kind::dict, std::make_shared<Dict>(budget_)); }

void Maker::insert(Value &dict, Value key, Value value) const {
    auto &d = static_cast<Dict &>(*dict.object());
    std::string name = key_of(key, *budget_);
    d.depth = std::max({d.depth, depth_above(key), depth_above(value)});
    const auto [at, is_new] = d.index.try_emplace(std::move(name), d.entries.size());
    if (!is_new) {
        d.entries[at->second].second = std::move(value);
        return;
    }
    d.grow(kEntryBytes + at->first.size());
    d.entries.emplace_back(std::move(key), std::move(value));
}

Value Maker::from_json(const Json &json, TrustedString trusted, bool all_trusted) const {
    return convert(json, {}, trusted, all_trusted, 0);
}

Value Maker::convert(const Json &json, std::string_view key, TrustedString trusted, bool all_trusted,
                     uint32_t depth) const {
    budget_->step();
    if (depth > kMaxValueDepth) {
        throw Trouble{ErrorKind::limit,
                      fmt::format("the variables lie more than {} deep in one another", kMaxValueDepth)};
    }
    switch (json.type()) {
        case Json::value_t::boolean:
            return Value::boolean(json.get<bool>());
        case Json::value_t::number_integer:
            return Value::integer(json.get<int64_t>());
        case Json::value_t::number_unsigned: {
            const auto n = json.get<uint64_t>();
            if (n > INT64_MAX) throw Trouble{ErrorKind::limit, fmt::format("the number {} is too large", n)};
            return Value::integer(static_cast<int64_t>(n));
        }
        case Json::value_t::number_float:
            return Value::real(json.get<double>());
        case Json::value_t::string: {
            const auto &text = json.get_ref<const std::string &>();
            return string(text, all_trusted || (trusted != nullptr && trusted(key, text)));
        }
        case Json::value_t::array: {
            Values items;
            for (const Json &item : json) items.push_back(convert(item, {}, trusted, all_trusted, depth + 1));
            return list(std::move(items));
        }
        case Json::value_t::object: {
            Value out = dict();
            for (const auto &[name, item] : json.items()) {
                insert(out, string(name, all_trusted), convert(item, name, trusted, all_trusted, depth + 1));
            }
            return out;
        }
        default:
            return Value::none();
    }
}

std::string key_of(const Value &key, Budget &budget) {
    budget.step();
    switch (key.kind()) {
        case Kind::string:
            budget.work(key.text().size());
            return string_key(key.text());
        case Kind::none:
            return "n";
        case Kind::boolean:
        case Kind::integer:
            return fmt::format("i{}", key.whole());
        case Kind::real:
            if (const auto whole = exact_integer(key.number())) return fmt::format("i{}", *whole);
            return fmt::format("r{}", std::bit_cast<uint64_t>(key.number()));
        case Kind::tuple: {
            std::string out = "(";
            for (const Value &item : key.sequence().items) {
                const std::string inner = key_of(item, budget);
                budget.require(out.size() + inner.size());
                budget.work(out.size() / 8 + inner.size());
                out += fmt::format("{}:{}", inner.size(), inner);
            }
            return out;
        }
        case Kind::undefined:
            return "u";
        case Kind::list:
        case Kind::dict:
            raise("unhashable type: '{}'", type_name(key));
        default:
            return fmt::format("o{}", static_cast<const void *>(key.object()));
    }
}

std::string_view type_name(const Value &value) {
    switch (value.kind()) {
        case Kind::missing:
        case Kind::undefined:
            return "Undefined";
        case Kind::none:
            return "NoneType";
        case Kind::boolean:
            return "bool";
        case Kind::integer:
            return "int";
        case Kind::real:
            return "float";
        case Kind::string:
            return value.string().is_markup ? "Markup" : "str";
        case Kind::list:
        case Kind::tuple:
        case Kind::range:
        case Kind::view:
        case Kind::iterator:
            return value.sequence().type;
        case Kind::dict:
            return "dict";
        case Kind::name_space:
            return "Namespace";
        case Kind::loop:
            return "LoopContext";
        case Kind::cycler:
            return "Cycler";
        case Kind::joiner:
            return "Joiner";
        case Kind::macro:
            return "Macro";
        case Kind::native:
            return "function";
    }
    return "object";
}

}  // namespace ridge::text::jinja
