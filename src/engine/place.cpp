#include "engine/place.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ridge {

namespace {

DeviceId of_layer(const std::vector<DeviceId> &devices, int32_t l) {
    return devices[static_cast<size_t>(std::clamp(l, 0, static_cast<int32_t>(devices.size()) - 1))];
}

bool has_ids(const Op &op) {
    if (const Contract *c = std::get_if<Contract>(&op)) return c->ids != kNone;
    if (const GateUp *g = std::get_if<GateUp>(&op)) return g->ids != kNone;
    return false;
}

}  // namespace

DeviceId DeviceMap::of(int32_t l) const { return layer.empty() ? 0 : of_layer(layer, l); }
DeviceId DeviceMap::experts_of(int32_t l) const { return experts.empty() ? of(l) : of_layer(experts, l); }

std::vector<DeviceId> devices_of(const Program &p, const DeviceMap &map) {
    // Values that experts write, up to the rows that are combined of them.
    std::vector<bool> of_experts(p.values.size(), false);
    struct Follow {
        std::vector<bool> &of_experts;
        bool found = false;
        void in(ValueId v) { found = found || of_experts[static_cast<size_t>(v)]; }
        void out(ValueId) {}
        void weight(WeightId) {}
        void state(StateId) {}
    };
    struct Mark {
        std::vector<bool> &of_experts;
        void in(ValueId) {}
        void out(ValueId v) { of_experts[static_cast<size_t>(v)] = true; }
        void weight(WeightId) {}
        void state(StateId) {}
    };
    std::vector<DeviceId> devices;
    devices.reserve(p.nodes.size());
    for (const Node &n : p.nodes) {
        Follow reads{of_experts};
        visit_operands(n.op, reads);
        const bool expert = has_ids(n.op) || reads.found;
        devices.push_back(expert ? map.experts_of(n.layer) : map.of(n.layer));
        if (expert && !std::holds_alternative<MoeCombine>(n.op)) visit_operands(n.op, Mark{of_experts});
    }
    return devices;
}

void place(Program &p, const DeviceMap &map) {
    struct SetDevice {
        Program &p;
        DeviceId device;
        void in(ValueId) {}
        void out(ValueId v) { p.values[static_cast<size_t>(v)].device = device; }
        void weight(WeightId) {}
        void state(StateId s) { p.states[static_cast<size_t>(s)].device = device; }
    };
    const std::vector<DeviceId> devices = devices_of(p, map);
    for (size_t i = 0; i < p.nodes.size(); i++) {
        p.nodes[i].device = devices[i];
        visit_operands(p.nodes[i].op, SetDevice{p, devices[i]});
    }
}

void insert_copies(Program &p) {
    std::map<std::pair<ValueId, DeviceId>, ValueId> copied;
    std::vector<Node> nodes;
    nodes.reserve(p.nodes.size());

    struct Redirect {
        Program &p;
        std::vector<Node> &nodes;
        std::map<std::pair<ValueId, DeviceId>, ValueId> &copied;
        const Node &node;
        void in(ValueId &v) {
            if (p.value(v).device == node.device) return;
            auto [it, is_new] = copied.try_emplace({v, node.device}, kNone);
            if (is_new) {
                Value there = p.value(v);
                there.device = node.device;
                there.name += "@" + std::to_string(node.device);
                it->second = p.add_value(there);
                nodes.push_back({Copy{v, it->second}, node.device, node.layer});
            }
            v = it->second;
        }
        void out(ValueId &) {}
        void weight(WeightId &) {}
        void state(StateId &) {}
    };
    for (Node n : p.nodes) {
        visit_operands(n.op, Redirect{p, nodes, copied, n});
        nodes.push_back(std::move(n));
    }
    p.nodes = std::move(nodes);
}

}  // namespace ridge
