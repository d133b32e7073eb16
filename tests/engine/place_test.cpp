// Placement: layers to devices, and the copies that follow.
#include "engine/place.h"
#include "engine/fuse.h"
#include "engine/support.h"

namespace ridge::test {
namespace {

TEST(Place, MapIsReadByLayer) {
    const DeviceMap m{{0, 1, 1}};
    EXPECT_EQ(m.of(-1), 0);  // the embedding goes with the first layer
    EXPECT_EQ(m.of(0), 0);
    EXPECT_EQ(m.of(1), 1);
    EXPECT_EQ(m.of(2), 1);
    EXPECT_EQ(m.of(3), 1);  // the output goes with the last
    EXPECT_EQ(DeviceMap{}.of(-1), 0);
    EXPECT_EQ(DeviceMap{}.of(17), 0);
    EXPECT_EQ((DeviceMap{{2, 0}}).of(-1), 2);
}

TEST(Place, NodesValuesAndStatesFollowTheirLayer) {
    Shape s = qwen3();
    s.layers = 4;
    Program p = forward(s);
    const DeviceMap map{{0, 1, 0, 2}};
    place(p, map);
    for (const Node &n : p.nodes) {
        EXPECT_EQ(n.device, map.of(n.layer));
        struct Written {
            const Program &p;
            DeviceId device;
            void in(ValueId) {}
            void out(ValueId v) { EXPECT_EQ(p.value(v).device, device) << p.value(v).name; }
            void weight(WeightId) {}
            void state(StateId st) { EXPECT_EQ(p.state(st).device, device) << p.state(st).name; }
        };
        visit_operands(n.op, Written{p, n.device});
    }
    EXPECT_EQ(p.value(p.logits).device, 2);
    EXPECT_EQ(p.states[2].device, 1);
    EXPECT_EQ(p.states[7].device, 2);
    // Read across devices, so not yet a program that runs.
    EXPECT_THROW(check(p), std::logic_error);
    insert_copies(p);
    EXPECT_NO_THROW(check(p));
}

TEST(Place, ExpertsMayLieElsewhereThanTheirLayer) {
    Shape s = qwen3moe();
    s.layers = 3;
    const Program p = forward(s);
    const DeviceMap map{{0, 0, 0}, {0, 1, 0}};
    EXPECT_EQ(map.experts_of(0), 0);
    EXPECT_EQ(map.experts_of(1), 1);
    EXPECT_EQ(map.experts_of(7), 0);
    EXPECT_EQ((DeviceMap{{0, 2}, {}}).experts_of(1), 2) << "with their layer";
    const std::vector<DeviceId> devices = devices_of(p, map);
    std::vector<std::string> moved;
    for (size_t i = 0; i < devices.size(); i++) {
        if (devices[i] == 0) continue;
        EXPECT_EQ(p.nodes[i].layer, 1);
        moved.emplace_back(op_name(static_cast<OpKind>(p.nodes[i].op.index())));
    }
    EXPECT_EQ(moved, (std::vector<std::string>{"contract", "contract", "glu", "contract", "moe_combine"}));
}

TEST(Place, OneDeviceNeedsNoCopies) {
    Program p = forward(llama());
    const size_t nodes = p.nodes.size(), values = p.values.size();
    place(p, {});
    insert_copies(p);
    EXPECT_EQ(p.nodes.size(), nodes);
    EXPECT_EQ(p.values.size(), values);
    EXPECT_EQ(count<Copy>(p), 0U);
}

struct CopyOf {
    std::string from;
    DeviceId source, target;
    bool operator==(const CopyOf &) const = default;
};

std::vector<CopyOf> copies(const Program &p) {
    std::vector<CopyOf> list;
    for (const Node &n : p.nodes)
        if (const Copy *c = std::get_if<Copy>(&n.op))
            list.push_back({p.value(c->x).name, p.value(c->x).device, p.value(c->out).device});
    return list;
}

TEST(Place, ValuesAreCopiedOncePerDeviceBeforeTheirFirstReader) {
    Shape s = llama();
    s.layers = 5;
    Program p = forward(s);
    place(p, {{0, 1, 1, 0, 1}});
    insert_copies(p);
    check(p);
    // The residual crosses at each border; the rope table goes over once although three layers there read it.
    const std::vector<CopyOf> expected{
        {"0.residual", 0, 1}, {"table", 0, 1}, {"2.residual", 1, 0}, {"3.residual", 0, 1}};
    EXPECT_EQ(copies(p), expected);
    for (size_t i = 0; i < p.nodes.size(); i++) {
        const Copy *c = std::get_if<Copy>(&p.nodes[i].op);
        if (!c) continue;
        EXPECT_EQ(p.nodes[i].device, p.value(c->out).device);
        EXPECT_EQ(p.value(c->out).cols, p.value(c->x).cols);
        EXPECT_EQ(p.value(c->out).type, p.value(c->x).type);
        EXPECT_EQ(p.value(c->out).name, p.value(c->x).name + "@" + std::to_string(p.nodes[i].device));
        struct Reads {
            ValueId v;
            bool found = false;
            void in(ValueId x) { found = found || x == v; }
            void out(ValueId) {}
            void weight(WeightId) {}
            void state(StateId) {}
        } reads{c->out};
        size_t next = i + 1;  // copies for the same node stand together
        while (std::holds_alternative<Copy>(p.nodes[next].op)) next++;
        visit_operands(p.nodes[next].op, reads);
        EXPECT_TRUE(reads.found) << "the node behind the copy of " << p.value(c->x).name << " does not read it";
    }
}

TEST(Place, OneNodeMayReadTheSameValueTwice) {
    Hand h;
    const ValueId x = h.value("x", 32);
    h.p.inputs = {x};
    h.layer = 1;
    h.add(x, x, "sum");
    place(h.p, {{0, 1}});
    insert_copies(h.p);
    check(h.p);
    EXPECT_EQ(count<Copy>(h.p), 1U);
    EXPECT_EQ(only<Add>(h.p).a, only<Copy>(h.p).out);
    EXPECT_EQ(only<Add>(h.p).b, only<Copy>(h.p).out);
}

TEST(Place, EverySplitOfEveryModelIsSoundFusedOrNot) {
    for (Shape s : {llama(), qwen2(), qwen3(), qwen3moe()}) {
        s.layers = 3;
        for (unsigned bits = 0; bits < 27; bits++)
            for (const LeverSet levers :
                 {LeverSet::none(), LeverSet::all(), LeverSet::all().without(Lever::int8_dot)}) {
                DeviceMap map{{static_cast<DeviceId>(bits % 3), static_cast<DeviceId>(bits / 3 % 3),
                               static_cast<DeviceId>(bits / 9)}};
                Program p = forward(s);
                place(p, map);
                p = fuse(std::move(p), levers);
                insert_copies(p);
                ASSERT_NO_THROW(check(p)) << to_string(p);
                size_t borders = 0;
                for (size_t l = 1; l < 3; l++) borders += map.layer[l] != map.layer[l - 1] ? 1 : 0;
                // A residual (fused: also its norm, or only that) per border, and the table once per further device.
                const auto list = copies(p);
                EXPECT_EQ(list.empty(), borders == 0);
                EXPECT_GE(list.size(), borders);
                EXPECT_LE(list.size(), 2 * borders + 2);
            }
    }
}

}  // namespace
}  // namespace ridge::test
