#include "text/jinja/interpreter.h"

#include <algorithm>

#include "core/error.h"
#include "gguf/printable.h"
#include "text/jinja/operations.h"

namespace ridge::text::jinja {

namespace {

constexpr NameId kNoName = UINT32_MAX;

NameId name_id(const Program &program, std::string_view name) {
    const auto at = std::ranges::find(program.names, name);
    return at == program.names.end() ? kNoName : static_cast<NameId>(at - program.names.begin());
}

}  // namespace

struct Interpreter::InScope {
    explicit InScope(Interpreter &run_, std::shared_ptr<Scope> parent)
        : run(run_), before(std::exchange(run_.scope_, std::make_shared<Scope>(Scope{std::move(parent), {}, false}))) {}
    explicit InScope(Interpreter &run_) : InScope(run_, run_.scope_) {}
    ~InScope() { run.scope_ = std::move(before); }
    InScope(const InScope &) = delete;
    InScope &operator=(const InScope &) = delete;

    Interpreter &run;
    std::shared_ptr<Scope> before;
};

Interpreter::Level::Level(Interpreter &run) : run_(run) {
    if (run.depth_ >= run.options_.limits.depth) {
        throw Trouble{ErrorKind::limit, fmt::format("more than {} calls, statements and expressions lie in one another",
                                                    run.options_.limits.depth)};
    }
    ++run.depth_;
}

Interpreter::Interpreter(const Program &program, std::string_view origin, const Json &variables,
                         const RenderOptions &options)
    : budget(options.limits),
      make(budget),
      program_(program),
      origin_(origin),
      options_(options),
      globals_(program.names.size()),
      scope_(std::make_shared<Scope>()),
      loop_name_(name_id(program, "loop")),
      caller_name_(name_id(program, "caller")),
      kwargs_name_(name_id(program, "kwargs")),
      varargs_name_(name_id(program, "varargs")) {
    try {
        define_variables(variables);
    } catch (const Trouble &t) {
        fail(t.kind, "{}: the variables of the chat template: {}", origin_, gguf::printable(t.text, 1000));
    }
}

Interpreter::~Interpreter() {
    for (const auto &scope : scopes_) scope->names.clear();
    for (const auto &object : kept_) object->drop();
}

// Only those that the template names.
void Interpreter::define_variables(const Json &variables) {
    for (size_t id = 0; id < program_.names.size(); ++id) {
        const std::string &name = program_.names[id];
        if (const auto v = variables.find(name); v != variables.end()) {
            globals_[id] = make.from_json(*v, options_.is_trusted, false);
        } else if (const auto t = options_.trusted.find(name); t != options_.trusted.end()) {
            globals_[id] = make.from_json(*t, nullptr, true);
        } else if (const Native *native = find_global(name)) {
            globals_[id] = Value::of(Kind::native, std::make_shared<BoundNative>(&budget, *native, Value()));
        }
    }
}

std::vector<Segment> Interpreter::run() {
    Text out(&budget);
    out_ = &out;
    execute(program_.body);
    return out.segments();
}

void Interpreter::fail_at(Position at, const Trouble &trouble) const {
    fail(trouble.kind, "{}: chat template, line {}, column {}: {}", origin_, at.line, at.column,
         gguf::printable(trouble.text, 1000));
}

void Interpreter::keep(std::shared_ptr<Object> object) {
    budget.hold(sizeof object);
    kept_.push_back(std::move(object));
}

// ---- Statements

Interpreter::Flow Interpreter::execute(const Body &body) {
    for (const Statement &s : body) {
        if (const Flow flow = execute(s); flow != Flow::normal) return flow;
    }
    return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement &s) {
    try {
        const Level level(*this);
        budget.step();
        return execute_kind(s);
    } catch (const Trouble &t) {
        fail_at(s.at, t);
    }
}

Interpreter::Flow Interpreter::execute_kind(const Statement &s) {
    switch (s.kind) {
        case StatementKind::data:
            out_->append(s.data);
            check_output();
            break;
        case StatementKind::output:
            for (const ExprPtr &e : s.exprs) write(evaluate(*e));
            break;
        case StatementKind::branch:
            return branch(s);
        case StatementKind::loop:
            return loop(s, loop_items(s, evaluate(*s.exprs[0])), 0);
        case StatementKind::set:
            assign(s.targets[0], evaluate(*s.exprs[0]));
            break;
        case StatementKind::set_block:
            return set_block(s);
        case StatementKind::macro:
            set(s.signature->name_id, macro(s));
            break;
        case StatementKind::call_block:
            call_block(s);
            break;
        case StatementKind::filter_block:
            return filter_block(s);
        case StatementKind::with:
            return with(s);
        case StatementKind::scope: {
            const InScope scope(*this);
            return execute(s.body);
        }
        case StatementKind::leave:
            return Flow::leave;
        case StatementKind::next:
            return Flow::next;
    }
    return Flow::normal;
}

Interpreter::Flow Interpreter::branch(const Statement &s) {
    for (const Branch &b : s.branches) {
        if (!b.test || truth(evaluate(*b.test))) return execute(b.body);
    }
    return Flow::normal;
}

Values Interpreter::loop_items(const Statement &s, const Value &of) {
    Values items = iterate(of, budget);
    if (!s.exprs[1]) return items;
    const Held held(budget, items.size() * sizeof(Value));
    Values kept;
    for (Value &item : items) {
        const InScope scope(*this);
        assign(s.targets[0], item);
        if (truth(evaluate(*s.exprs[1]))) kept.push_back(std::move(item));
    }
    return kept;
}

Interpreter::Flow Interpreter::loop(const Statement &s, Values items, int64_t outer_loops) {
    const auto object = std::make_shared<Loop>(&budget, items.size() * sizeof(Value));
    object->items = std::move(items);
    for (const Value &item : object->items) object->depth = std::max(object->depth, depth_above(item));
    object->outer_loops = outer_loops;
    object->statement = s.recursive ? &s : nullptr;
    bool completed = false;  // whether a body ran to its end: as jinja has it, `continue` alone leads to `else`
    for (; object->index < object->items.size(); ++object->index) {
        budget.step();
        const InScope scope(*this);
        if (loop_name_ != kNoName) set(loop_name_, Value::of(Kind::loop, object));
        assign(s.targets[0], object->items[object->index]);
        const Flow flow = execute(s.body);
        if (flow == Flow::leave) break;
        completed = completed || flow == Flow::normal;
    }
    if (completed || s.otherwise.empty()) return Flow::normal;
    const InScope scope(*this);
    return execute(s.otherwise);
}

Interpreter::Flow Interpreter::capture(const Body &body, Text &out) {
    const InScope scope(*this);
    Text *before = std::exchange(out_, &out);
    const Flow flow = execute(body);
    out_ = before;
    return flow;
}

Interpreter::Flow Interpreter::set_block(const Statement &s) {
    Text text(&budget);
    if (const Flow flow = capture(s.body, text); flow != Flow::normal) return flow;
    Value v = make.string(std::move(text));
    if (s.exprs[0]) {
        block_text_ = std::move(v);
        v = evaluate(*s.exprs[0]);
    }
    assign(s.targets[0], v);
    return Flow::normal;
}

Interpreter::Flow Interpreter::filter_block(const Statement &s) {
    Text text(&budget);
    if (const Flow flow = capture(s.body, text); flow != Flow::normal) return flow;
    block_text_ = make.string(std::move(text));
    const Value v = evaluate(*s.exprs[0]);
    if (!v.is_string()) raise("the filter of a block gives a string, not '{}'", type_name(v));
    write(v);
    return Flow::normal;
}

Interpreter::Flow Interpreter::with(const Statement &s) {
    const Values values = evaluate_all(s.exprs);
    const InScope scope(*this);
    for (size_t i = 0; i < values.size(); ++i) assign(s.targets[i], values[i]);
    return execute(s.body);
}

Value Interpreter::macro(const Statement &s) {
    auto m = std::make_shared<Macro>(&budget, sizeof(Macro));
    m->signature = s.signature.get();
    m->body = &s.body;
    m->scope = scope_;
    for (std::shared_ptr<Scope> scope = scope_; scope && !scope->is_kept; scope = scope->parent) {
        budget.hold(sizeof(Scope));
        scope->is_kept = true;
        scopes_.push_back(scope);
    }
    return Value::of(Kind::macro, std::move(m));
}

void Interpreter::call_block(const Statement &s) {
    const Expr &e = *s.exprs[0];
    try {
        const Value callee = evaluate(*e.parts[0]);
        Arguments arguments = evaluate(e.arguments);
        arguments.named.emplace_back("caller", macro(s));
        write(call(callee, std::move(arguments)));
    } catch (const Trouble &t) {
        fail_at(e.at, t);
    }
}

// ---- Names and output

void Interpreter::write(const Value &v) {
    append_str(*out_, v, budget);
    check_output();
}

void Interpreter::check_output() const {
    if (out_->size() > options_.limits.output) {
        throw Trouble{ErrorKind::limit,
                      fmt::format("the template writes more than {} MiB", options_.limits.output >> 20)};
    }
}

void Interpreter::set(NameId name, Value v) {
    const auto known = std::ranges::find(scope_->names, name, &std::pair<NameId, Value>::first);
    budget.work(scope_->names.size());
    if (known == scope_->names.end()) {
        scope_->names.emplace_back(name, std::move(v));
    } else {
        known->second = std::move(v);
    }
}

Value Interpreter::look_up(NameId name) {
    for (const Scope *scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
        budget.work(scope->names.size());
        const auto known = std::ranges::find(scope->names, name, &std::pair<NameId, Value>::first);
        if (known != scope->names.end()) return known->second;
    }
    if (!globals_[name].is_missing()) return globals_[name];
    return make.undefined(fmt::format("'{}' is undefined", program_.names[name]));
}

void Interpreter::assign(const Target &t, const Value &v) {
    switch (t.kind) {
        case Target::Kind::name:
            set(t.name, v);
            break;
        case Target::Kind::attribute: {
            const Value object = look_up(t.name);
            if (!object.is(Kind::name_space))
                raise("only attributes of a namespace can be set, not those of '{}'", type_name(object));
            if (t.attribute.starts_with('_'))
                raise("the attribute '{}' of a namespace would start with '_'", t.attribute);
            auto &attributes = static_cast<Namespace &>(*object.object()).attributes;
            const auto [at, is_new] = attributes.insert_or_assign(t.attribute, v);
            if (is_new) static_cast<Namespace &>(*object.object()).grow(sizeof(Value) + 2 * t.attribute.size() + 64);
            break;
        }
        case Target::Kind::tuple: {
            const Values items = iterate(v, budget);
            if (items.size() != t.parts.size()) {
                raise("{} values cannot be assigned to {} names", items.size(), t.parts.size());
            }
            for (size_t i = 0; i < items.size(); ++i) assign(t.parts[i], items[i]);
            break;
        }
    }
}

// ---- Expressions

Value Interpreter::evaluate(const Expr &e) {
    try {
        const Level level(*this);
        budget.step();
        return evaluate_kind(e);
    } catch (const Trouble &t) {
        fail_at(e.at, t);
    }
}

Value Interpreter::evaluate_kind(const Expr &e) {
    switch (e.kind) {
        case ExprKind::constant:
            return e.constant;
        case ExprKind::name:
            return look_up(e.name);
        case ExprKind::list:
            return make.list(evaluate_all(e.parts));
        case ExprKind::tuple:
            return make.tuple(evaluate_all(e.parts));
        case ExprKind::dict:
            return dict(e);
        case ExprKind::attribute:
            return attribute(*this, evaluate(*e.parts[0]), e.text);
        case ExprKind::item: {
            const Value of = evaluate(*e.parts[0]);
            return item(*this, of, evaluate(*e.parts[1]));
        }
        case ExprKind::slice: {
            const Value of = evaluate(*e.parts[0]);
            const Value start = evaluate_or_missing(e.parts[1]);
            const Value stop = evaluate_or_missing(e.parts[2]);
            return slice(*this, of, start, stop, evaluate_or_missing(e.parts[3]));
        }
        case ExprKind::call: {
            const Value callee = evaluate(*e.parts[0]);
            return call(callee, evaluate(e.arguments));
        }
        case ExprKind::filter:
        case ExprKind::test: {
            if (e.native == nullptr) {
                raise("{}", e.kind == ExprKind::filter ? no_such_filter(e.text) : no_such_test(e.text));
            }
            const Value of = evaluate(*e.parts[0]);
            return call_native(*this, *e.native, of, evaluate(e.arguments));
        }
        case ExprKind::block_text:
            return block_text_;
        case ExprKind::logical_not:
            return Value::boolean(!truth(evaluate(*e.parts[0])));
        case ExprKind::negative: {
            const Value of = evaluate(*e.parts[0]);
            if (of.is(Kind::real)) return Value::real(-of.number());
            return arithmetic(*this, Arithmetic::subtract, Value::integer(0), of);
        }
        case ExprKind::positive:
            return arithmetic(*this, Arithmetic::add, Value::integer(0), evaluate(*e.parts[0]));
        case ExprKind::arithmetic: {
            const Value left = evaluate(*e.parts[0]);
            return arithmetic(*this, e.operation, left, evaluate(*e.parts[1]));
        }
        case ExprKind::concat:
            return concat(e);
        case ExprKind::compare:
            return compare_chain(e);
        case ExprKind::logical_and:
        case ExprKind::logical_or: {
            Value left = evaluate(*e.parts[0]);
            return truth(left) == (e.kind == ExprKind::logical_or) ? left : evaluate(*e.parts[1]);
        }
        case ExprKind::conditional: {
            if (truth(evaluate(*e.parts[0]))) return evaluate(*e.parts[1]);
            if (e.parts[2]) return evaluate(*e.parts[2]);
            return make.undefined("an inline if without else has no value here, as its condition does not hold");
        }
    }
    return {};
}

Value Interpreter::compare_chain(const Expr &e) {
    Value left = evaluate(*e.parts[0]);
    for (size_t i = 0; i < e.comparisons.size(); ++i) {
        Value right = evaluate(*e.parts[i + 1]);
        if (!compare(e.comparisons[i], left, right, budget)) return Value::boolean(false);
        left = std::move(right);
    }
    return Value::boolean(true);
}

Value Interpreter::concat(const Expr &e) {
    Text text(&budget);
    for (const Value &v : evaluate_all(e.parts)) append_str(text, v, budget);
    return make.string(std::move(text));
}

Value Interpreter::dict(const Expr &e) {
    Value out = make.dict();
    for (size_t i = 0; i < e.parts.size(); i += 2) {
        Value key = evaluate(*e.parts[i]);
        make.insert(out, std::move(key), evaluate(*e.parts[i + 1]));
    }
    return out;
}

Values Interpreter::evaluate_all(const Exprs &exprs) {
    Values out;
    out.reserve(exprs.size());
    for (const ExprPtr &e : exprs) out.push_back(evaluate(*e));
    return out;
}

Arguments Interpreter::evaluate(const CallArguments &arguments) {
    Arguments out{evaluate_all(arguments.positional), {}};
    for (const auto &[name, e] : arguments.named) out.named.emplace_back(name, evaluate(*e));
    if (arguments.star) {
        Values more = iterate(evaluate(*arguments.star), budget);
        std::ranges::move(more, std::back_inserter(out.positional));
    }
    if (arguments.double_star) {
        const Held positional(budget, out.bytes());
        const Value more = evaluate(*arguments.double_star);
        if (!more.is(Kind::dict)) raise("the argument behind ** is a dict, not '{}'", type_name(more));
        const Held held(budget, more.dict().entries.size() * 2 * sizeof(Value));
        for (const auto &[key, value] : more.dict().entries) {
            budget.step(1 + out.named.size());
            if (!key.is_string()) raise("the keys of a dict behind ** are strings");
            if (std::ranges::find(out.named, key.text().bytes(), &std::pair<std::string, Value>::first) !=
                out.named.end()) {
                raise("the argument '{}' is given twice", key.text().bytes());
            }
            out.named.emplace_back(key.text().bytes(), value);
        }
    }
    return out;
}

// ---- Calls

Value Interpreter::call(const Value &callee, Arguments arguments) {
    switch (callee.kind()) {
        case Kind::undefined:
            raise("{}", callee.text().bytes());
        case Kind::macro:
            return call_macro(static_cast<const Macro &>(*callee.object()), std::move(arguments));
        case Kind::native: {
            const auto &bound = static_cast<const BoundNative &>(*callee.object());
            return call_native(*this, bound.native, bound.self, std::move(arguments));
        }
        case Kind::loop:
            return call_loop(callee.shared(), std::move(arguments));
        case Kind::joiner: {
            auto &joiner = static_cast<Joiner &>(*callee.object());
            return std::exchange(joiner.used, true) ? joiner.separator : make.string("", true);
        }
        default:
            raise("'{}' object is not callable", type_name(callee));
    }
}

Value Interpreter::call_macro(const Macro &m, Arguments arguments) {
    const Level level(*this);
    const Held held(budget, arguments.bytes());
    const InScope scope(*this, m.scope);
    bind(m, arguments);
    Text text(&budget);
    Text *before = std::exchange(out_, &text);
    execute(*m.body);
    out_ = before;
    return make.string(std::move(text));
}

// The parameters as names in the scope of the call, with the special names that the body uses.
void Interpreter::bind(const Macro &m, Arguments &arguments) {
    const Signature &signature = *m.signature;
    const auto named = [&](std::string_view name) {
        budget.step(1 + arguments.named.size());
        const auto at = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
        if (at == arguments.named.end()) return Value();
        Value v = std::move(at->second);
        arguments.named.erase(at);
        return v;
    };
    bool has_caller = false;
    for (size_t i = 0; i < signature.parameters.size(); ++i) {
        const Parameter &p = signature.parameters[i];
        has_caller = has_caller || p.text == "caller";
        Value v = i < arguments.positional.size() ? std::move(arguments.positional[i]) : named(p.text);
        if (v.is_missing() && p.preset) v = evaluate(*p.preset);
        if (v.is_missing()) v = make.undefined(fmt::format("parameter '{}' was not provided", p.text));
        set(p.name, std::move(v));
    }
    if (signature.uses_caller && !has_caller) {
        Value caller = named("caller");
        set(caller_name_,
            caller.is_missing() || caller.is(Kind::none) ? make.undefined("no caller is defined") : caller);
    }
    if (signature.uses_kwargs) {
        Value rest = make.dict();
        for (auto &[name, value] : arguments.named) make.insert(rest, make.string(name, true), std::move(value));
        set(kwargs_name_, std::move(rest));
    } else if (!arguments.named.empty()) {
        raise("macro '{}' takes no keyword argument '{}'", signature.name, arguments.named[0].first);
    }
    const size_t count = std::min(arguments.positional.size(), signature.parameters.size());
    if (signature.uses_varargs) {
        arguments.positional.erase(arguments.positional.begin(),
                                   arguments.positional.begin() + static_cast<std::ptrdiff_t>(count));
        set(varargs_name_, make.tuple(std::move(arguments.positional)));
    } else if (arguments.positional.size() > count) {
        raise("macro '{}' takes not more than {} argument(s)", signature.name, signature.parameters.size());
    }
}

Value Interpreter::call_loop(const std::shared_ptr<Object> &object, Arguments arguments) {
    const auto &outer = static_cast<const Loop &>(*object);
    if (outer.statement == nullptr) raise("a loop needs the mark 'recursive' to be called");
    if (arguments.positional.size() != 1 || !arguments.named.empty()) raise("a loop is called with one argument");
    const Level level(*this);
    const Statement &s = *outer.statement;
    Text text(&budget);
    Text *before = std::exchange(out_, &text);
    loop(s, loop_items(s, arguments.positional[0]), outer.outer_loops + 1);
    out_ = before;
    return make.string(std::move(text));
}

}  // namespace ridge::text::jinja
