#include "runtime/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace ridge {
namespace {

// Which devices may be used.
struct Allowed {
    const BackendRow *gpu = nullptr;  // the backend of all GPUs; nullptr: none
    std::vector<unsigned> numbers;    // of them
    bool all_numbers = false;         // no --device restricts them
    bool cpu = false;
    bool by_name = false;  // --device names them
    std::string notes;
};

const BackendRow &cpu_row(std::span<const BackendRow> rows) {
    const auto cpu = std::find_if(rows.begin(), rows.end(), [](const BackendRow &r) { return r.open && !r.is_gpu(); });
    RIDGE_ASSERT(cpu != rows.end());
    return *cpu;
}

void add_all(Allowed &a, const BackendOptions &options) {
    const unsigned n = a.gpu->count(options);
    for (unsigned i = 0; i < n; i++) a.numbers.push_back(i);
    a.all_numbers = true;
}

// All GPUs of the next backend that sees any, from the first one on. False: there is none left.
bool take_next(Allowed &a, const DeviceChoice &choice) {
    bool passed = a.gpu == nullptr;
    a.numbers.clear();
    for (const BackendRow &row : choice.backends) {
        if (!passed) {
            passed = &row == a.gpu;
            continue;
        }
        if (!row.open || !row.is_gpu()) continue;
        a.gpu = &row;
        try {
            add_all(a, choice.options);
            if (!a.numbers.empty()) return true;
        } catch (const Error &) {  // a machine without such GPUs is no news; `ridge devices` tells why
        }
    }
    a.gpu = nullptr;
    return false;
}

Allowed allowed_by(const DeviceChoice &choice) {
    Allowed a;
    a.by_name = !choice.names.empty();
    for (const std::string &name : choice.names) {
        const DeviceName d = parse_device(name, choice.backends);
        if (!d.row->is_gpu()) {
            a.cpu = true;
            continue;
        }
        if (a.gpu && a.gpu != d.row)
            fail(ErrorKind::usage, "--device: a model runs on the GPUs of one backend, not of {} and {}", a.gpu->name,
                 d.row->name);
        a.gpu = d.row;
        if (!d.index) {
            a.numbers.clear();
            add_all(a, choice.options);
            if (a.numbers.empty()) fail(ErrorKind::unsupported, "{} finds no device on this machine", d.row->name);
        } else if (std::find(a.numbers.begin(), a.numbers.end(), *d.index) == a.numbers.end()) {
            a.numbers.push_back(*d.index);
        }
    }
    if (a.by_name) return a;
    a.cpu = true;
    take_next(a, choice);
    return a;
}

// Devices as they are opened, in the order of the rooms.
class Opened {
  public:
    explicit Opened(const DeviceChoice &choice) : choice_(choice) {}

    void add_gpu(const BackendRow &row, unsigned number) {
        devices_.push_back(open_device(row, number, choice_.options));
        rooms_.push_back(room_of(devices_.back()->info(), std::to_string(number), false));
    }
    void add_cpu() {
        devices_.push_back(cpu_row(choice_.backends).open(choice_.options));
        rooms_.push_back(room_of(devices_.back()->info(), "cpu", true));
    }
    bool has(std::string_view key) const {
        return std::any_of(rooms_.begin(), rooms_.end(), [&](const Room &r) { return r.key == key; });
    }
    bool has_gpu() const { return !rooms_.empty() && !rooms_[0].is_host; }
    // The rooms, with what of the host's memory integrated GPUs have.
    std::vector<Room> rooms() const {
        std::vector<Room> corrected = rooms_;
        if (std::any_of(rooms_.begin(), rooms_.end(), [](const Room &r) { return r.shares_host; }))
            correct_shared_memory(corrected, rooms_.back().is_host
                                                 ? devices_.back()->info()
                                                 : cpu_row(choice_.backends).open(choice_.options)->info());
        return corrected;
    }
    // The rooms without the CPU.
    std::vector<Room> gpus() const {
        std::vector<Room> all = rooms();
        if (all.back().is_host) all.pop_back();
        return all;
    }

    // Only what the map uses, numbered anew.
    PlacedDevices finish(const DeviceMap &map, const Demand &d, const std::string &notes = {}) {
        const std::vector<Room> all = rooms();
        PlacedDevices p;
        p.flags = place_flags(map, d.plain, all);
        p.text = describe(map, d, all);
        p.notes = notes;
        const std::vector<DeviceId> used = devices_of(d.plain, map);
        std::vector<DeviceId> number(devices_.size(), kNone);
        for (size_t i = 0; i < devices_.size(); i++) {
            if (std::find(used.begin(), used.end(), static_cast<DeviceId>(i)) == used.end()) continue;
            number[i] = static_cast<DeviceId>(p.devices.size());
            p.devices.push_back(std::move(devices_[i]));
        }
        p.map = map;
        for (std::vector<DeviceId> *list : {&p.map.layer, &p.map.experts})
            for (DeviceId &id : *list) id = number[static_cast<size_t>(id)];
        return p;
    }

  private:
    const DeviceChoice &choice_;
    std::vector<std::unique_ptr<Backend>> devices_;
    std::vector<Room> rooms_;
};

PlacedDevices place_as_told(const DeviceChoice &choice, const Allowed &allowed, const Demand &d,
                            std::string_view model) {
    const std::vector<PlaceEntry> entries = parse_place(choice.place, d.plain.n_layers);
    const uint32_t experts = choice.experts.empty() ? 0 : parse_experts(choice.experts, d.plain);
    Opened opened(choice);
    bool wants_cpu = experts > 0;
    std::vector<unsigned> numbers;
    for (const PlaceEntry &e : entries) {
        wants_cpu = wants_cpu || !e.gpu;
        if (!e.gpu || std::find(numbers.begin(), numbers.end(), *e.gpu) != numbers.end()) continue;
        if (!allowed.gpu)
            fail(
                ErrorKind::unsupported,
                "--place {}: {} is the number of a GPU, and there is none that can be used (`ridge devices` says why); "
                "--place cpu would do",
                choice.place, *e.gpu);
        if (!allowed.all_numbers &&
            std::find(allowed.numbers.begin(), allowed.numbers.end(), *e.gpu) == allowed.numbers.end())
            fail(ErrorKind::usage, "--place {}: GPU {} is none of those that --device names", choice.place, *e.gpu);
        numbers.push_back(*e.gpu);
    }
    for (const unsigned n : numbers) opened.add_gpu(*allowed.gpu, n);
    if (wants_cpu) opened.add_cpu();
    const std::vector<Room> rooms = opened.rooms();
    const DeviceMap map = map_of(entries, experts, d.plain, rooms);
    // The CPU reads weights where the file is mapped, so it is slow without memory for them, but it goes.
    std::vector<Need> needs = needs_of(d, map, rooms.size());
    for (size_t i = 0; i < rooms.size(); i++)
        if (rooms[i].is_host) needs[i].weights = 0;
    for (size_t i = 0; i < rooms.size(); i++) {
        if (needs[i].bytes() <= rooms[i].free) continue;
        std::string instead = "a shorter --context or fewer layers there would fit";
        if (const auto automatic = automatic_map(d, rooms))
            instead = place_flags(*automatic, d.plain, rooms) + " would fit";
        fail(ErrorKind::limit, "{}: --place {} does not fit: {} would take {}, and {:.2f} GiB are free; {}", model,
             choice.place, rooms[i].name, describe(needs[i]), static_cast<double>(rooms[i].free) / (uint64_t{1} << 30),
             instead);
    }
    return opened.finish(map, d);
}

PlacedDevices place_automatically(const DeviceChoice &choice, Allowed allowed, const Demand &d, uint32_t trained,
                                  const SessionOptions &options, unsigned sessions, std::string_view model) {
    std::optional<uint32_t> experts;
    if (!choice.experts.empty()) experts = parse_experts(choice.experts, d.plain);
    Opened opened(choice);
    std::string notes;
    // One GPU after the other, until the model fits: to open one takes a while. Where none of a backend can be opened,
    // those of the next.
    do {
        for (const unsigned n : allowed.numbers) {
            try {
                opened.add_gpu(*allowed.gpu, n);
            } catch (const Error &e) {
                if (allowed.by_name) throw;
                notes += fmt::format("{}{} is not used: {}", notes.empty() ? "" : "; ", device_name(*allowed.gpu, n),
                                     e.what());
                continue;
            }
            if (experts) continue;
            if (const auto map = automatic_map(d, opened.gpus())) return opened.finish(*map, d, notes);
        }
    } while (!opened.has_gpu() && !allowed.by_name && allowed.gpu != nullptr && take_next(allowed, choice));
    if (allowed.cpu || experts.value_or(0) > 0) opened.add_cpu();
    const std::vector<Room> rooms = opened.rooms();
    const auto map = automatic_map(d, rooms, experts);
    if (!map && !allowed.cpu && !experts) {
        std::string names;
        for (const Room &r : rooms) names += r.name + ",";
        std::vector<Room> more = rooms;
        more.push_back(room_of(cpu_row(choice.backends).open(choice.options)->info(), "cpu", true));
        if (const auto other = automatic_map(d, more))
            fail(ErrorKind::limit, "{}: does not fit {}: it takes {}; --device {}cpu would place it so: {}", model,
                 choice.names.size() == 1 ? "this device" : "these devices", describe(needs_of(d, {}, 1)[0]), names,
                 describe(*other, d, more));
    }
    if (!map) refuse(d.plain, trained, options, sessions, rooms, experts, model);
    return opened.finish(*map, d, notes);
}

}  // namespace

PlacedDevices place_model(const DeviceChoice &choice, const Program &plain, uint32_t trained,
                          const SessionOptions &options, unsigned sessions, std::string_view model) {
    const Demand d = demand_of(plain, trained, options, sessions);
    const Allowed allowed = allowed_by(choice);
    if (choice.place.empty()) return place_automatically(choice, allowed, d, trained, options, sessions, model);
    return place_as_told(choice, allowed, d, model);
}

std::unique_ptr<Backend> open_one(const DeviceChoice &choice) {
    Allowed allowed = allowed_by(choice);
    if (!choice.place.empty()) {
        const std::vector<PlaceEntry> entries = parse_place(choice.place, UINT32_MAX);
        const auto first =
            std::find_if(entries.begin(), entries.end(), [](const PlaceEntry &e) { return e.gpu.has_value(); });
        if (first == entries.end()) return cpu_row(choice.backends).open(choice.options);
        allowed.numbers = {*first->gpu}, allowed.by_name = true;
    }
    if (!allowed.gpu) return cpu_row(choice.backends).open(choice.options);
    for (const unsigned n : allowed.numbers) {
        try {
            return open_device(*allowed.gpu, n, choice.options);
        } catch (const Error &) {
            if (allowed.by_name) throw;
        }
    }
    return cpu_row(choice.backends).open(choice.options);
}

}  // namespace ridge
