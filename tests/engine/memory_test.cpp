// The memory plan: values that are alive together never share bytes.
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "engine/fuse.h"
#include "engine/place.h"
#include "engine/plan.h"
#include "engine/support.h"

namespace ridge::test {
namespace {

// A value lies in memory from the node that writes it (inputs: from before the first node) to its last reader; logits
// to the end of the step.
struct Life {
    size_t first = 0, last = 0;
    bool used = false;
};

std::vector<Life> lives(const Program &p) {
    std::vector<Life> life(p.values.size());
    auto touch = [&](ValueId v, size_t node) {
        Life &l = life[static_cast<size_t>(v)];
        l.first = l.used ? std::min(l.first, node) : node;
        l.last = l.used ? std::max(l.last, node) : node;
        l.used = true;
    };
    for (ValueId v : p.inputs) touch(v, 0);
    for (size_t i = 0; i < p.nodes.size(); i++) {
        struct Each {
            const std::function<void(ValueId)> f;
            void in(ValueId v) { f(v); }
            void out(ValueId v) { f(v); }
            void weight(WeightId) {}
            void state(StateId) {}
        } each{[&](ValueId v) { touch(v, i); }};
        visit_operands(p.nodes[i].op, each);
    }
    if (p.logits != kNone) touch(p.logits, p.nodes.size());
    return life;
}

size_t bytes_of(const Value &v, const StepLimits &l) {
    const size_t rows = size_t{v.rows == Rows::tokens ? l.tokens : l.outputs} * v.per_row;
    switch (v.type) {
        case DType::q8:
            return rows * (v.cols + v.cols / 32 * 4 + v.cols / 16 * 2);
        case DType::f16:
            return rows * v.cols * 2;
        default:
            return rows * v.cols * 4;
    }
}

// Empty: all is well.
std::string fault(const Program &p, const StepLimits &limits, size_t devices) {
    const MemoryPlan plan = plan_memory(p, limits, devices);
    const std::vector<Life> life = lives(p);
    if (plan.offset.size() != p.values.size() || plan.device_bytes.size() != devices) return "sizes";
    size_t shared = 0;
    for (size_t b : plan.device_bytes) shared += b;
    if (shared > plan.unshared_bytes) return "sharing takes more than not sharing";
    for (size_t v = 0; v < p.values.size(); v++) {
        const Value &x = p.values[v];
        if (!life[v].used) {
            if (plan.offset[v] != MemoryPlan::kUnused) return x.name + " is unused, but has an offset";
            continue;
        }
        if (plan.offset[v] == MemoryPlan::kUnused) return x.name + " has no offset";
        if (plan.offset[v] % 256 != 0) return x.name + " is not aligned";
        if (plan.offset[v] + bytes_of(x, limits) > plan.device_bytes[static_cast<size_t>(x.device)])
            return x.name + " ends behind its arena";
        for (size_t w = 0; w < v; w++) {
            const Value &y = p.values[w];
            if (!life[w].used || x.device != y.device) continue;
            if (life[v].last < life[w].first || life[w].last < life[v].first) continue;
            const size_t x_end = plan.offset[v] + bytes_of(x, limits), y_end = plan.offset[w] + bytes_of(y, limits);
            if (plan.offset[v] < y_end && plan.offset[w] < x_end) return x.name + " and " + y.name + " overlap";
        }
    }
    return {};
}

// Any graph of additions: shapes do not matter here, lifetimes and sizes do.
Program random_program(size_t devices) {
    Hand h;
    const auto sized = [&](const std::string &name) {
        const ValueId v = h.value(name, 32 * *rc::gen::inRange(1U, 9U), *rc::gen::inRange(1U, 4U),
                                  *rc::gen::element(DType::f32, DType::q8, DType::f16, DType::i32),
                                  *rc::gen::element(Rows::tokens, Rows::outputs));
        h.p.values[static_cast<size_t>(v)].device = static_cast<DeviceId>(*rc::gen::inRange<size_t>(0, devices));
        return v;
    };
    std::vector<ValueId> written;
    const auto inputs = *rc::gen::inRange(1, 4);
    for (int i = 0; i < inputs; i++) written.push_back(sized("in" + std::to_string(i)));
    h.p.inputs = written;
    const auto nodes = *rc::gen::inRange(1, 40);
    for (int i = 0; i < nodes; i++) {
        // Mostly recent values, sometimes old ones.
        const auto pick = [&] {
            const size_t back = *rc::gen::inRange<size_t>(0, *rc::gen::element<size_t>(2, 4, written.size()));
            return written[written.size() - 1 - std::min(back, written.size() - 1)];
        };
        const ValueId out = sized("v" + std::to_string(i));
        if (*rc::gen::inRange(0, 8) == 0) sized("unused" + std::to_string(i));
        h.push(Add{pick(), pick(), out});
        written.push_back(out);
    }
    if (*rc::gen::arbitrary<bool>()) h.p.logits = *rc::gen::elementOf(written);
    return h.p;
}

TEST(Memory, NothingAliveTogetherOverlaps) {
    const bool ok = rc::check("random programs", [] {
        const size_t devices = *rc::gen::inRange<size_t>(1, 4);
        const Program p = random_program(devices);
        const StepLimits limits{.tokens = *rc::gen::inRange(1U, 20U), .outputs = *rc::gen::inRange(1U, 20U)};
        const std::string what = fault(p, limits, devices);
        RC_LOG() << what;
        RC_ASSERT(what.empty());
    });
    EXPECT_TRUE(ok);
}

TEST(Memory, ModelsFused) {
    for (Shape s : {llama(), qwen3moe()})
        for (LeverSet levers : {LeverSet::none(), LeverSet::all()})
            for (uint32_t tokens : {1U, 33U}) {
                s.layers = 4;
                Program p = forward(s);
                place(p, {{0, 1, 1, 0}});
                p = fuse(std::move(p), levers);
                insert_copies(p);
                EXPECT_EQ(fault(p, {.tokens = tokens, .outputs = tokens}, 2), "");
            }
}

TEST(Memory, DepthCostsNothing) {
    // A chain needs no more than its widest pair, however long.
    Shape s = llama();
    const auto bytes = [&](uint32_t layers) {
        s.layers = layers;
        return plan_memory(fuse(forward(s), LeverSet::all()), {.tokens = 16, .outputs = 16}, 1).device_bytes[0];
    };
    EXPECT_EQ(bytes(3), bytes(30));
}

TEST(Memory, AChainAlternatesBetweenTwoPlaces) {
    Hand h;
    ValueId x = h.value("x", 64);
    h.p.inputs = {x};
    for (int i = 0; i < 9; i++) x = h.norm(x, "n" + std::to_string(i));
    const MemoryPlan plan = plan_memory(h.p, {.tokens = 1}, 1);
    EXPECT_EQ(plan.device_bytes[0], 2U * 256);
    EXPECT_EQ(plan.unshared_bytes, 10U * 256);
    EXPECT_EQ(std::set<size_t>(plan.offset.begin(), plan.offset.end()).size(), 2U);
}

TEST(Memory, OutputIsNeverTheInputOfItsOwnNode) {
    Hand h;
    const ValueId x = h.value("x", 64);
    h.p.inputs = {x};
    const ValueId y = h.norm(x, "y");
    const MemoryPlan plan = plan_memory(h.p, {.tokens = 3}, 1);
    EXPECT_NE(plan.offset[static_cast<size_t>(x)], plan.offset[static_cast<size_t>(y)]);
}

TEST(Memory, LogitsLiveToTheEnd) {
    Hand h;
    const ValueId x = h.value("x", 64, 1, DType::f32, Rows::outputs);
    h.p.inputs = {x};
    const ValueId logits = h.norm(x, "logits");
    h.norm(h.norm(x, "a"), "b");
    h.p.logits = logits;
    const MemoryPlan plan = plan_memory(h.p, {.tokens = 1, .outputs = 2}, 1);
    for (size_t v = 0; v < h.p.values.size(); v++)
        EXPECT_EQ(plan.offset[v] == plan.offset[static_cast<size_t>(logits)], static_cast<ValueId>(v) == logits);
}

TEST(Memory, NoValuesNoBytes) {
    const MemoryPlan plan = plan_memory(Program{}, {}, 2);
    EXPECT_EQ(plan.device_bytes, (std::vector<size_t>{0, 0}));
    EXPECT_EQ(plan.unshared_bytes, 0U);
}

}  // namespace
}  // namespace ridge::test
