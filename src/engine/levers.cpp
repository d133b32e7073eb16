#include "engine/levers.h"

#include <cstdlib>

#include "core/error.h"

namespace ridge {
namespace {

constexpr LeverInfo kLevers[] = {
#define LEVER(id, on, acts, eliminates, surfaces) {Lever::id, #id, on != 0, LeverActs::acts, eliminates, surfaces},
#include "engine/levers.def"
};

}  // namespace

std::span<const LeverInfo> all_levers() { return kLevers; }

std::string_view name(Lever l) { return l == Lever::none ? "none" : kLevers[static_cast<unsigned>(l)].name; }

const LeverInfo &info(Lever l) { return kLevers[static_cast<unsigned>(l)]; }

std::optional<Lever> find_lever(std::string_view name) {
    for (const LeverInfo &l : kLevers)
        if (l.name == name) return l.id;
    return std::nullopt;
}

LeverSet LeverSet::defaults() {
    LeverSet s;
    for (const LeverInfo &l : kLevers)
        if (l.on_by_default) s = s.with(l.id);
    return s;
}

LeverSet LeverSet::all() {
    LeverSet s;
    for (const LeverInfo &l : kLevers) s = s.with(l.id);
    return s;
}

LeverSet LeverSet::edited(std::string_view text, std::string_view where) const {
    LeverSet s = *this;
    const std::string_view separators = ", \t\n";
    while (true) {
        const size_t start = text.find_first_not_of(separators);
        if (start == std::string_view::npos) return s;
        text.remove_prefix(start);
        std::string_view word = text.substr(0, text.find_first_of(separators));
        text.remove_prefix(word.size());
        if (word == "none" || word == "all" || word == "default") {
            s = word == "none" ? none() : word == "all" ? all() : defaults();
            continue;
        }
        const bool off = word.front() == '-';
        if (off || word.front() == '+') word.remove_prefix(1);
        const std::optional<Lever> l = find_lever(word);
        if (!l) {
            std::string known;
            for (const LeverInfo &i : kLevers) known += (known.empty() ? "" : ", ") + std::string(i.name);
            fail(ErrorKind::usage,
                 "{}: no lever is called '{}'; write -name to switch one off, +name to switch one on, "
                 "or none, all, default. Known levers: {}",
                 where, word, known);
        }
        s = off ? s.without(*l) : s.with(*l);
    }
}

LeverSet LeverSet::from_environment() {
    const char *text = std::getenv("RIDGE_LEVERS");
    return text ? defaults().edited(text, "RIDGE_LEVERS") : defaults();
}

std::string LeverSet::to_string() const {
    if (*this == none()) return "none";
    std::string text;
    const LeverSet base = defaults();
    for (const LeverInfo &l : kLevers)
        if (has(l.id) != base.has(l.id))
            text += (text.empty() ? "" : ",") + std::string(has(l.id) ? "+" : "-") + std::string(l.name);
    return text.empty() ? "default" : text;
}

}  // namespace ridge
