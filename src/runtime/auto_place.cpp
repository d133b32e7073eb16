#include "runtime/auto_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge {
namespace {

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (uint64_t{1} << 30); }
// In GiB.
std::string amount(uint64_t bytes) { return fmt::format("{:.{}f}", gib(bytes), bytes < (uint64_t{1} << 30) ? 2 : 1); }

// Largest n in [low, high] for which `holds`, which holds for low and not again once it fails.
template <class F>
uint32_t last_that(uint32_t low, uint32_t high, F &&holds) {
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (holds(middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

bool fits_alone(const Need &need, const Room &room, bool with_margin) {
    return need.bytes() == 0 || need.bytes() + (with_margin ? margin_of(room) : 0) <= room.free;
}

// Layers of one device as text: "0-27", "0-3, 8-11".
std::string ranges(const std::vector<int32_t> &layers) {
    std::string text;
    for (size_t i = 0, j; i < layers.size(); i = j) {
        for (j = i + 1; j < layers.size() && layers[j] == layers[j - 1] + 1;) j++;
        text += text.empty() ? "" : ", ";
        text += j - i == 1 ? fmt::format("{}", layers[i]) : fmt::format("{}-{}", layers[i], layers[j - 1]);
    }
    return text;
}

// Puts the experts of the last `n` layers that have any on the CPU.
void move_experts(DeviceMap &map, const std::vector<int32_t> &with_experts, uint32_t n, DeviceId host) {
    if (n == 0) return;
    map.experts = map.layer;
    for (size_t i = with_experts.size() - n; i < with_experts.size(); i++)
        map.experts[static_cast<size_t>(with_experts[i])] = host;
}

// Fills the GPUs with layers from the first on; `left` layers fit on none and are on `rest`.
struct Filled {
    DeviceMap map;
    uint32_t left = 0;
};
Filled fill(const Demand &d, std::span<const Room> gpus, uint32_t experts, const std::vector<int32_t> &with_experts,
            DeviceId rest) {
    const uint32_t n = d.plain.n_layers;
    Filled f;
    f.map.layer.assign(n, rest);
    uint32_t done = 0;
    for (size_t g = 0; g < gpus.size() && done < n; g++) {
        const auto holds = [&](uint32_t end) {
            DeviceMap m{f.map.layer, {}};
            std::fill(m.layer.begin() + done, m.layer.begin() + end, static_cast<DeviceId>(g));
            move_experts(m, with_experts, experts, rest);
            return fits_alone(needs_of(d, m, static_cast<size_t>(rest) + 1)[g], gpus[g], true);
        };
        const uint32_t end = last_that(done, n, holds);
        std::fill(f.map.layer.begin() + done, f.map.layer.begin() + end, static_cast<DeviceId>(g));
        done = end;
    }
    move_experts(f.map, with_experts, experts, rest);
    f.left = n - done;
    return f;
}

// ---- --place

constexpr std::string_view kGrammar = "DEVICE:LAYERS, with the number of a GPU or cpu, as in 0:20,1:20,cpu:8";

template <class T>
std::optional<T> whole_number(std::string_view text) {
    T n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return n;
}

// One entry; no count: it takes what is left.
struct Part {
    std::optional<unsigned> gpu;
    std::optional<uint32_t> layers;
};

Part parse_part(std::string_view part, std::string_view whole) {
    if (part.empty())
        fail(ErrorKind::usage, "--place {}: there is an empty entry; each is {}", gguf::printable(whole), kGrammar);
    const size_t colon = part.find(':');
    const std::string_view device = part.substr(0, colon);
    Part p;
    if (device != "cpu") {
        p.gpu = whole_number<unsigned>(device);
        if (!p.gpu)
            fail(ErrorKind::usage, "--place {}: '{}' is no device; an entry is {}", gguf::printable(whole),
                 gguf::printable(device), kGrammar);
    }
    if (colon == std::string_view::npos) return p;
    p.layers = whole_number<uint32_t>(part.substr(colon + 1));
    if (!p.layers)
        fail(ErrorKind::usage, "--place {}: '{}' is no number of layers; an entry is {}", gguf::printable(whole),
             gguf::printable(part.substr(colon + 1)), kGrammar);
    return p;
}

}  // namespace

Room room_of(const DeviceInfo &info, std::string key, bool is_host) {
    return {info.name, std::move(key), info.memory_total, info.memory_free, is_host, info.shares_host_memory};
}

uint64_t margin_of(const Room &room) { return std::min(room.total / 16, uint64_t{512} << 20); }

void correct_shared_memory(std::span<Room> rooms, const DeviceInfo &host) {
    for (Room &r : rooms) {
        if (r.is_host || !r.shares_host) continue;
        // A part of the memory that is set aside for the GPU, which the host does not see.
        if (r.total > host.memory_total + host.memory_total / 16) {
            r.shares_host = false;
            continue;
        }
        const bool whole = r.total >= host.memory_total - host.memory_total / 16;
        r.free = whole ? host.memory_free : std::min(r.free, host.memory_free);
    }
}

namespace {

// What a GPU keeps beside values and state: rotations of all positions, and the activations of a step in f16 for its
// matrix units.
uint64_t kept_besides(const Program &p, const StepLimits &limits) {
    uint64_t tables = 0, inputs = 0;
    for (const Node &n : p.nodes) {
        if (const RopeTable *t = std::get_if<RopeTable>(&n.op))
            tables += uint64_t{limits.pages} * kPageTokens * p.value(t->out).cols * sizeof(float);
        if (const Contract *c = std::get_if<Contract>(&n.op))
            inputs = std::max(inputs, uint64_t{limits.tokens} * p.value(c->x).cols * sizeof(uint16_t));
    }
    return tables + inputs;
}

}  // namespace

Demand demand_of(const Program &plain, uint32_t trained, const SessionOptions &options, unsigned sessions) {
    SessionOptions o = options;
    o.map = {};
    o.context = o.context == 0 ? default_context(trained) : std::min(o.context, trained);
    const EngineOptions engine = engine_options(o.context, o.batch);
    const Program fused = prepared(plain, o.context, {}, o);
    Demand d{plain, plan_memory(fused, engine.limits, 1).device_bytes[0] * sessions, {}, o.context};
    d.activations += kept_besides(fused, engine.limits);
    for (const State &s : fused.states) d.state.push_back(state_bytes(s, engine) * sessions);
    return d;
}

std::vector<Need> needs_of(const Demand &d, const DeviceMap &map, size_t n_devices) {
    std::vector<Need> needs(n_devices);
    const std::vector<DeviceId> devices = devices_of(d.plain, map);
    // What is read twice lies on a device once: the embedding that is the output matrix too.
    std::set<std::pair<DeviceId, uint64_t>> counted;
    std::set<std::pair<DeviceId, StateId>> states;
    struct Count {
        const Demand &d;
        DeviceId device;
        Need &need;
        std::set<std::pair<DeviceId, uint64_t>> &counted;
        std::set<std::pair<DeviceId, StateId>> &states;
        void in(ValueId) {}
        void out(ValueId) {}
        void weight(WeightId id) {
            const Weight &w = d.plain.weight(id);
            const auto key = w.data != nullptr ? reinterpret_cast<uint64_t>(w.data) : static_cast<uint64_t>(id);
            if (counted.insert({device, key}).second) need.weights += w.bytes();
        }
        void state(StateId id) {
            if (states.insert({device, id}).second) need.state += d.state[static_cast<size_t>(id)];
        }
    };
    for (size_t i = 0; i < devices.size(); i++) {
        Need &need = needs[static_cast<size_t>(devices[i])];
        need.activations = d.activations;
        visit_operands(d.plain.nodes[i].op, Count{d, devices[i], need, counted, states});
    }
    return needs;
}

bool fits(std::span<const Need> needs, std::span<const Room> rooms, bool with_margin) {
    uint64_t shared = 0, free = 0, margin = 0;
    for (size_t i = 0; i < rooms.size(); i++) {
        if (!fits_alone(needs[i], rooms[i], with_margin)) return false;
        if (!rooms[i].shares_host && !rooms[i].is_host) continue;
        shared += needs[i].bytes();
        free = std::max(free, rooms[i].free), margin = std::max(margin, margin_of(rooms[i]));
    }
    return shared == 0 || shared + (with_margin ? margin : 0) <= free;
}

std::vector<int32_t> expert_layers(const Program &p) {
    // The layers in which nodes move when the experts of all do.
    DeviceMap map;
    map.layer.assign(std::max(p.n_layers, 1U), 0);
    map.experts.assign(map.layer.size(), 1);
    const std::vector<DeviceId> devices = devices_of(p, map);
    std::set<int32_t> layers;
    for (size_t i = 0; i < devices.size(); i++)
        if (devices[i] == 1) layers.insert(p.nodes[i].layer);
    return {layers.begin(), layers.end()};
}

std::optional<DeviceMap> automatic_map(const Demand &d, std::span<const Room> rooms, std::optional<uint32_t> experts) {
    const bool has_host = !rooms.empty() && rooms.back().is_host;
    const std::span<const Room> gpus = rooms.first(rooms.size() - (has_host ? 1 : 0));
    const auto rest = static_cast<DeviceId>(gpus.size());  // the CPU, or nothing that is there
    const std::vector<int32_t> with_experts = expert_layers(d.plain);
    const auto all = static_cast<uint32_t>(with_experts.size());

    Filled f = fill(d, gpus, experts.value_or(0), with_experts, rest);
    if (f.left > 0 && !experts && has_host && !gpus.empty() && all > 0) {
        f = fill(d, gpus, all, with_experts, rest);
        if (f.left == 0) {  // then as few as have to
            const uint32_t stay =
                last_that(0, all, [&](uint32_t n) { return fill(d, gpus, all - n, with_experts, rest).left == 0; });
            f = fill(d, gpus, all - stay, with_experts, rest);
        }
    }
    if ((f.left > 0 || !f.map.experts.empty()) && !has_host) return std::nullopt;
    if (f.map.experts == f.map.layer) f.map.experts.clear();
    if (!fits(needs_of(d, f.map, rooms.size()), rooms)) return std::nullopt;
    return f.map;
}

std::vector<PlaceEntry> parse_place(std::string_view text, uint32_t n_layers) {
    std::vector<PlaceEntry> entries;
    uint64_t named = 0;
    for (size_t at = 0;; at++) {
        const size_t comma = std::min(text.find(',', at), text.size());
        const Part part = parse_part(text.substr(at, comma - at), text);
        at = comma;
        if (!part.layers && at != text.size())
            fail(ErrorKind::usage, "--place {}: only the last entry may leave out its layers; each is {}",
                 gguf::printable(text), kGrammar);
        const uint32_t rest = n_layers - static_cast<uint32_t>(std::min<uint64_t>(named, n_layers));
        entries.push_back({part.gpu, part.layers.value_or(rest)});
        named += entries.back().layers;
        if (at == text.size()) break;
    }
    if (named > n_layers)
        fail(ErrorKind::usage, "--place {}: that is {} layers, but the model has {}; 0:{} would put all on GPU 0",
             gguf::printable(text), named, n_layers, n_layers);
    if (named < n_layers) entries.push_back({std::nullopt, n_layers - static_cast<uint32_t>(named)});
    return entries;
}

uint32_t parse_experts(std::string_view text, const Program &p) {
    const auto all = static_cast<uint32_t>(expert_layers(p).size());
    std::optional<uint32_t> n;
    if (text == "cpu") n = all;
    if (text.starts_with("cpu:")) n = whole_number<uint32_t>(text.substr(4));
    if (!n)
        fail(ErrorKind::usage,
             "--experts {}: it is cpu, or cpu:N for the experts of the last N layers; elsewhere they lie with their "
             "layer",
             gguf::printable(text));
    if (all == 0) fail(ErrorKind::usage, "--experts {}: the model has no experts", text);
    if (*n > all) fail(ErrorKind::usage, "--experts {}: the model has experts in {} layers", text, all);
    return *n;
}

DeviceMap map_of(std::span<const PlaceEntry> entries, uint32_t experts, const Program &p, std::span<const Room> rooms) {
    const auto device_of = [&](const std::string &key) {
        const auto found = std::find_if(rooms.begin(), rooms.end(), [&](const Room &r) { return r.key == key; });
        RIDGE_ASSERT(found != rooms.end());
        return static_cast<DeviceId>(found - rooms.begin());
    };
    DeviceMap map;
    for (const PlaceEntry &e : entries)
        map.layer.insert(map.layer.end(), e.layers, device_of(e.gpu ? std::to_string(*e.gpu) : "cpu"));
    if (experts > 0) move_experts(map, expert_layers(p), experts, device_of("cpu"));
    if (map.experts == map.layer) map.experts.clear();
    return map;
}

std::string place_flags(const DeviceMap &map, const Program &p, std::span<const Room> rooms) {
    std::string text = "--place ";
    const auto n = static_cast<int32_t>(p.n_layers);
    for (int32_t l = 0, end; l < n; l = end) {
        for (end = l + 1; end < n && map.of(end) == map.of(l);) end++;
        text += fmt::format("{}{}:{}", l == 0 ? "" : ",", rooms[static_cast<size_t>(map.of(l))].key, end - l);
    }
    // The last layers that have experts, back to the first of them that lie with a layer on a GPU.
    const std::vector<int32_t> with_experts = expert_layers(p);
    uint32_t on_host = 0, moved = 0;
    for (size_t i = with_experts.size(); i-- > 0; on_host++) {
        const int32_t l = with_experts[i];
        if (!rooms[static_cast<size_t>(map.experts_of(l))].is_host) break;
        if (map.of(l) != map.experts_of(l)) moved = on_host + 1;
    }
    if (moved > 0) text += moved == with_experts.size() ? " --experts cpu" : fmt::format(" --experts cpu:{}", moved);
    return text;
}

std::string describe(const DeviceMap &map, const Demand &d, std::span<const Room> rooms) {
    const std::vector<Need> needs = needs_of(d, map, rooms.size());
    const auto last = static_cast<int32_t>(d.plain.n_layers) - 1;
    const std::vector<int32_t> with_experts = expert_layers(d.plain);
    std::string text;
    for (size_t i = 0; i < rooms.size(); i++) {
        const auto device = static_cast<DeviceId>(i);
        std::vector<int32_t> layers, experts;
        for (int32_t l = 0; l <= last; l++)
            if (map.of(l) == device) layers.push_back(l);
        for (const int32_t l : with_experts)
            if (map.experts_of(l) == device && map.of(l) != device) experts.push_back(l);
        std::string what;
        const auto add = [&](const std::string &more) { what += (what.empty() ? "" : " + ") + more; };
        if (!layers.empty()) add((layers.size() == 1 ? "layer " : "layers ") + ranges(layers));
        if (map.of(-1) == device) add("embedding");
        if (map.of(last + 1) == device) add("output");
        if (!experts.empty()) add((experts.size() == 1 ? "experts of layer " : "experts of layers ") + ranges(experts));
        if (what.empty()) continue;
        text += fmt::format("{}{} {} ({} of {} GiB free)", text.empty() ? "" : ", ", rooms[i].name, what,
                            amount(needs[i].bytes()), amount(rooms[i].free));
    }
    return text;
}

std::string describe(const Need &need) {
    return fmt::format("{} GiB (weights {}, state {}, activations {})", amount(need.bytes()), amount(need.weights),
                       amount(need.state), amount(need.activations));
}

void refuse(const Program &plain, uint32_t trained, const SessionOptions &options, unsigned sessions,
            std::span<const Room> rooms, std::optional<uint32_t> experts, std::string_view model) {
    const Demand wanted = demand_of(plain, trained, options, sessions);
    const auto map_at = [&](uint32_t context) {
        SessionOptions o = options;
        o.context = context;
        return automatic_map(demand_of(plain, trained, o, sessions), rooms, experts);
    };
    std::string free;
    for (const Room &r : rooms)
        free += fmt::format("{}{} has {} of {} GiB free", free.empty() ? "" : ", ", r.name, amount(r.free),
                            amount(r.total));
    const std::string why = fmt::format(
        "{}: does not fit: on one device it takes {} for a context of {}, and {}, of which a sixteenth or "
        "0.5 GiB stays free",
        model, describe(needs_of(wanted, {}, 1)[0]), wanted.context, free);
    constexpr uint32_t kLeast = 256;
    if (wanted.context > kLeast && map_at(kLeast)) {
        const uint32_t pages = last_that(kLeast / kPageTokens, (wanted.context - 1) / kPageTokens,
                                         [&](uint32_t n) { return map_at(n * kPageTokens).has_value(); });
        const uint32_t context = pages * kPageTokens;
        fail(ErrorKind::limit, "{}. It would fit with --context {} ({})", why, context,
             place_flags(*map_at(context), plain, rooms));
    }
    fail(ErrorKind::limit, "{}. A model of fewer bytes would fit; --place cpu runs this one from the disk, slowly",
         why);
}

}  // namespace ridge
