// Levers: every optimisation by name, and a set of them as a value.
//
// A lever set belongs to a program, so two programs with different levers run side by side in one process over one
// copy of the weights. levers.def is the table; this is the only place that reads the environment for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ridge {

enum class Lever : uint8_t {
#define LEVER(id, on, acts, eliminates, surfaces) id,
#include "engine/levers.def"
    none,  // marks a baseline: always legal
};

// What a lever changes: the launches of a plan, the tiles of launches with expert ids, how workers wait between
// launches, how launches are submitted to a GPU, or the memory that the weights lie in.
enum class LeverActs : uint8_t { launches, experts, waiting, submitting, weights };

struct LeverInfo {
    Lever id;
    std::string_view name;
    bool on_by_default;
    LeverActs acts;
    std::string_view eliminates;
    std::string_view surfaces_in;
};
std::span<const LeverInfo> all_levers();
std::string_view name(Lever l);
const LeverInfo &info(Lever l);  // precondition: not none
std::optional<Lever> find_lever(std::string_view name);

class LeverSet {
  public:
    static LeverSet defaults();
    static LeverSet none() { return {}; }
    static LeverSet all();

    bool has(Lever l) const { return l == Lever::none || ((bits_ >> static_cast<unsigned>(l)) & 1) != 0; }
    LeverSet with(Lever l) const { return LeverSet(bits_ | mask(l)); }
    LeverSet without(Lever l) const { return LeverSet(bits_ & ~mask(l)); }
    bool operator==(const LeverSet &) const = default;

    // Applies "-gate_up,+int8_dot" (also "none", "all", "default"; separated by commas or blanks; a bare name means +)
    // from left to right. `where` names the source in errors. Throws Error{usage} naming the unknown lever and the
    // known ones.
    LeverSet edited(std::string_view text, std::string_view where) const;

    // Defaults edited by RIDGE_LEVERS.
    static LeverSet from_environment();

    // "-gate_up" as the difference to the defaults; "default" where there is none; "none" for the empty set. Stamped on
    // every measurement.
    std::string to_string() const;

  private:
    explicit LeverSet(uint64_t bits) : bits_(bits) {}
    LeverSet() = default;
    static uint64_t mask(Lever l) { return l == Lever::none ? 0 : uint64_t{1} << static_cast<unsigned>(l); }
    uint64_t bits_ = 0;
};

}  // namespace ridge
