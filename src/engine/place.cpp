#include "engine/place.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ridge {

DeviceId DeviceMap::of(int32_t l) const {
    if (layer.empty()) return 0;
    return layer[static_cast<size_t>(std::clamp(l, 0, static_cast<int32_t>(layer.size()) - 1))];
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
    for (Node &n : p.nodes) {
        n.device = map.of(n.layer);
        visit_operands(n.op, SetDevice{p, n.device});
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
