// The global functions.
#include <algorithm>
#include <array>
#include <ctime>
#include <vector>

#include "gguf/printable.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace ridge::text::jinja {

namespace {

using Args = const Arguments &;

constexpr int64_t kMaxRange = 100'000;  // as jinja's sandbox has it

Value range(Interpreter &run, const Value &, Args a) {
    const int64_t start = a.has(1) ? a.whole(0, 0) : 0;
    const int64_t stop = a.has(1) ? a.whole(1, 0) : a.whole(0, 0);
    const int64_t by = a.whole(2, 1);
    if (by == 0) raise("the step of a range cannot be zero");
    Values items;
    for (int64_t i = start; by > 0 ? i < stop : i > stop;) {
        if (items.size() == kMaxRange) {
            throw Trouble{ErrorKind::limit, fmt::format("a range has more than {} items", kMaxRange)};
        }
        items.push_back(Value::integer(i));
        if (__builtin_add_overflow(i, by, &i)) break;
    }
    run.budget.work(items.size() * 16);
    Value out = run.make.sequence(Kind::range, std::move(items), "range");
    out.sequence().start = start;
    out.sequence().stop = stop;
    out.sequence().by = by;
    return out;
}

// dict(): of a dict or of pairs, then what is named.
Value make_dict(Interpreter &run, const Value &, Args a) {
    if (a.positional.size() > 1) raise("dict takes at most 1 argument, not {}", a.positional.size());
    Value out = run.make.dict();
    if (!a.positional.empty() && a[0].is(Kind::dict)) {
        for (const auto &[key, value] : a[0].dict().entries) run.make.insert(out, key, value);
    } else if (!a.positional.empty()) {
        for (const Value &pair : iterate(a[0], run.budget)) {
            const Values both = iterate(pair, run.budget);
            if (both.size() != 2) raise("dict takes pairs, but an item has {} values", both.size());
            run.make.insert(out, both[0], both[1]);
        }
    }
    for (const auto &[name, value] : a.named) run.make.insert(out, run.make.string(name, true), value);
    return out;
}

Value make_namespace(Interpreter &run, const Value &self, Args a) {
    const Value attributes = make_dict(run, self, a);
    auto out = std::make_shared<Namespace>(&run.budget, sizeof(Namespace));
    for (const auto &[key, value] : attributes.dict().entries) {
        if (!key.is_string()) raise("the attributes of a namespace are strings, not '{}'", type_name(key));
        const std::string &name = key.text().bytes();
        if (name.starts_with('_')) {
            raise("the attribute '{}' of a namespace would start with '_'", gguf::printable(name));
        }
        out->grow(sizeof(Value) + 2 * name.size() + 64);
        out->attributes.insert_or_assign(name, value);
    }
    run.keep(out);
    return Value::of(Kind::name_space, std::move(out));
}

Value make_cycler(Interpreter &run, const Value &, Args a) {
    if (a.positional.empty()) raise("cycler needs at least one item");
    const Value items = run.make.list(a.positional);
    auto out = std::make_shared<Cycler>(&run.budget, a.positional.size() * sizeof(Value));
    out->items = a.positional;
    out->depth = items.object()->depth;
    return Value::of(Kind::cycler, std::move(out));
}

Value make_joiner(Interpreter &run, const Value &, Args a) {
    auto out = std::make_shared<Joiner>(&run.budget, sizeof(Joiner));
    out->separator = a.has(0) ? a[0] : run.make.string(", ", true);
    if (out->separator.object() != nullptr) {
        const Value as_item = run.make.list({out->separator});
        out->depth = as_item.object()->depth;
    }
    return Value::of(Kind::joiner, std::move(out));
}

Value raise_exception(Interpreter &run, const Value &, Args a) {
    Text text(&run.budget);
    append_str(text, a[0], run.budget);
    raise("{}", text.bytes());
}

Value strftime_now(Interpreter &run, const Value &, Args a) {
    const std::string format(a.text(0, ""));
    if (format.size() > 1000) throw Trouble{ErrorKind::limit, "the format of a time has more than 1000 characters"};
    std::tm now{};
    if (run.options().now) {
        now = *run.options().now;
    } else {
        const std::time_t seconds = std::time(nullptr);
        localtime_r(&seconds, &now);
    }
    run.budget.work(format.size() * 16);
    // An empty result and one that does not fit look the same: the space in front tells them apart.
    std::string text(100 + 64 * format.size(), '\0');
    const size_t size = std::strftime(text.data(), text.size(), (" " + format).c_str(), &now);
    if (size == 0) raise("the format of a time '{}' gives too long a text", gguf::printable(format));
    return run.make.string(std::string_view(text).substr(1, size - 1), true);
}

Value lipsum(Interpreter &, const Value &, Args) { raise("lipsum is random, which a chat template cannot be"); }

constexpr std::array kRows{
    Native{.name = "range", .call = range, .parameters = {"start", "stop", "step"}, .required = 1, .by_position = true},
    Native{.name = "dict", .call = make_dict, .takes_all = true},
    Native{.name = "namespace", .call = make_namespace, .takes_all = true},
    Native{.name = "cycler", .call = make_cycler, .takes_all = true},
    Native{.name = "joiner", .call = make_joiner, .parameters = {"sep"}},
    Native{.name = "raise_exception", .call = raise_exception, .parameters = {"message"}, .required = 1},
    Native{.name = "strftime_now", .call = strftime_now, .parameters = {"format"}, .required = 1},
    Native{.name = "lipsum", .call = lipsum, .takes_all = true},
};

// ---- Methods of what these make

Value cycler_next(Interpreter &, const Value &self, Args) {
    auto &cycler = static_cast<Cycler &>(*self.object());
    Value out = cycler.items[cycler.position];
    cycler.position = (cycler.position + 1) % cycler.items.size();
    return out;
}

Value cycler_reset(Interpreter &, const Value &self, Args) {
    static_cast<Cycler &>(*self.object()).position = 0;
    return Value::none();
}

constexpr std::array kCyclerRows{
    Native{.name = "next", .call = cycler_next},
    Native{.name = "reset", .call = cycler_reset},
};

Value loop_cycle(Interpreter &, const Value &self, Args a) {
    if (a.positional.empty()) raise("loop.cycle needs at least one item");
    return a[static_cast<const Loop &>(*self.object()).index % a.positional.size()];
}

Value loop_changed(Interpreter &run, const Value &self, Args a) {
    auto &loop = static_cast<Loop &>(*self.object());
    const Value now = run.make.tuple(a.positional);
    if (!loop.last_changed.is_missing() && equal(loop.last_changed, now, run.budget)) return Value::boolean(false);
    if (loop.last_changed.is_missing()) run.keep(self.shared());
    loop.last_changed = now;
    return Value::boolean(true);
}

constexpr std::array kLoopRows{
    Native{.name = "cycle", .call = loop_cycle, .takes_all = true},
    Native{.name = "changed", .call = loop_changed, .takes_all = true},
};

}  // namespace

std::span<const Native> globals() { return kRows; }
std::span<const Native> methods_cycler() { return kCyclerRows; }
std::span<const Native> methods_loop() { return kLoopRows; }

}  // namespace ridge::text::jinja
