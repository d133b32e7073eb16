// The choice of rows over tables made up for the test.
#include "engine/plan.h"

#include "engine/fuse.h"
#include "engine/place.h"
#include "engine/support.h"

namespace ridge::test {
namespace {

constexpr Features kOld = 1, kNew = 2;

template <class T>
Kernel row(std::string_view name, int rank = 0) {
    Kernel k;
    k.name = name;
    k.op = kind<T>();
    k.rank = rank;
    return k;
}
Kernel contract_row(std::string_view name, int rank, FormatSet formats, DType input = DType::f32) {
    Kernel k = row<Contract>(name, rank);
    k.formats = formats, k.input = input;
    return k;
}

// One contraction over Q8_0.
struct One {
    Hand h;
    One(Format f = Format::Q8_0, uint32_t k = 64) {
        const ValueId x = h.value("x", k);
        h.p.inputs = {x};
        h.contract(x, "y", 16, f);
        h.p.levers = LeverSet::all();
    }
    const Op &op() const { return h.p.nodes[0].op; }
    std::vector<std::string> legal(const Backend &b, uint32_t tokens = 1) const {
        std::vector<std::string> names;
        for (const Kernel *k : legal_rows(h.p, op(), b, tokens)) names.emplace_back(k->name);
        return names;
    }
    std::string why(const Backend &b, uint32_t tokens = 1) const {
        std::vector<Rejection> rejected;
        legal_rows(h.p, op(), b, tokens, &rejected);
        EXPECT_EQ(rejected.size(), 1U);
        return rejected.empty() ? "" : rejected[0].why;
    }
};
using Names = std::vector<std::string>;

TEST(Rows, HighestRankFirstAndTheTablesOrderAmongEquals) {
    const TableBackend b("dev", {contract_row("low", 1, FormatSet::all()), contract_row("first", 5, FormatSet::all()),
                                 contract_row("second", 5, FormatSet::all()), contract_row("top", 9, FormatSet::all()),
                                 row<Add>("other op", 99)});
    EXPECT_EQ(One().legal(b), (Names{"top", "first", "second", "low"}));
}

TEST(Rows, FormatsMustAllBeRead) {
    const TableBackend b("dev", {contract_row("q8 only", 0, {Format::Q8_0})});
    EXPECT_EQ(One().legal(b), Names{"q8 only"});
    EXPECT_EQ(One(Format::Q4_0).why(b), "does not read Q4_0");
    Hand h;
    const ValueId x = h.value("x", 64);
    h.p.inputs = {x};
    h.contract(x, "a", 16, Format::Q8_0), h.contract(x, "b", 16, Format::Q4_0);
    const Program p = fuse(h.p, LeverSet::none().with(Lever::qkv));
    std::vector<Rejection> rejected;
    EXPECT_TRUE(legal_rows(p, p.nodes[0].op, b, 1, &rejected).empty());
    EXPECT_EQ(rejected.at(0).why, "does not read Q8_0+Q4_0");
    const TableBackend both("dev", {contract_row("both", 0, {Format::Q8_0, Format::Q4_0})});
    EXPECT_EQ(legal_rows(p, p.nodes[0].op, both, 1).size(), 1U);
}

TEST(Rows, ActivationsMustBeOfTheRowsType) {
    const TableBackend b("dev", {contract_row("int8", 0, FormatSet::quantized(), DType::q8)});
    EXPECT_EQ(One().why(b), "reads q8 activations, these are f32");
    const Program p = fuse(One().h.p, LeverSet::all());
    EXPECT_EQ(legal_rows(p, p.nodes[1].op, b, 1).size(), 1U);
}

TEST(Rows, TokenRangesAreInclusive) {
    Kernel k = contract_row("mid", 0, FormatSet::all());
    k.tokens = {4, 16};
    const TableBackend b("dev", {k});
    for (uint32_t m : {4U, 5U, 15U, 16U}) EXPECT_EQ(One().legal(b, m), Names{"mid"}) << m;
    EXPECT_EQ(One().why(b, 3), "is for 4 tokens or more");
    EXPECT_EQ(One().why(b, 17), "is for 16 tokens or fewer");
}

TEST(Rows, AllFeaturesAreNeeded) {
    Kernel k = contract_row("new", 0, FormatSet::all());
    k.needs = kOld | kNew;
    TableBackend b("dev", {k});
    EXPECT_EQ(One().why(b), "needs feature3");
    b.has = kOld;
    EXPECT_EQ(One().why(b), "needs feature2");
    b.has = kNew | kOld | 4;
    EXPECT_EQ(One().legal(b), Names{"new"});
}

TEST(Rows, LeversOfTheProgramDecide) {
    Kernel k = contract_row("fast", 9, FormatSet::all());
    k.lever = Lever::avx2;
    const TableBackend b("dev", {k, contract_row("base", 0, FormatSet::all())});
    One one;
    EXPECT_EQ(one.legal(b), (Names{"fast", "base"}));
    one.h.p.levers = LeverSet::all().without(Lever::avx2);
    EXPECT_EQ(one.legal(b), Names{"base"});
    EXPECT_EQ(one.why(b), "its lever avx2 is off");
    one.h.p.levers = LeverSet::none();
    EXPECT_EQ(one.legal(b), Names{"base"}) << "the baseline needs no lever";
}

TEST(Rows, ARowMayRefuseForItsOwnReason) {
    Kernel k = contract_row("picky", 9, FormatSet::all());
    k.refuses = [](const Program &p, const Op &op) -> std::string_view {
        return p.value(std::get<Contract>(op).x).cols % 256 != 0 ? "k is not a multiple of 256" : "";
    };
    const TableBackend b("dev", {k});
    EXPECT_EQ(One().why(b), "k is not a multiple of 256");
    EXPECT_EQ(One(Format::Q8_0, 256).legal(b), Names{"picky"});
}

// A row for every operation, so that whole programs can be planned.
std::vector<Kernel> full_table() {
    std::vector<Kernel> rows;
    for (size_t op = 0; op < kOpKinds; op++)
        for (DType input : {DType::f32, DType::q8}) {
            Kernel k;
            k.name = op_name(static_cast<OpKind>(op));
            k.op = static_cast<OpKind>(op);
            k.formats = FormatSet::all();
            k.input = input;
            rows.push_back(k);
        }
    return rows;
}

TEST(Plan, ChoosesForEveryNodeAndCutsSegmentsAtDevices) {
    Shape s = llama();
    s.layers = 3;
    Program p = forward(s);
    place(p, {{0, 1, 0}});
    p = fuse(std::move(p), LeverSet::all());
    insert_copies(p);
    const TableBackend a("a", full_table()), b("b", full_table());
    Backend *devices[] = {const_cast<TableBackend *>(&a), const_cast<TableBackend *>(&b)};
    const Plan plan = make_plan(p, devices, 7);
    EXPECT_EQ(plan.tokens, 7U);
    ASSERT_EQ(plan.choices.size(), p.nodes.size());
    uint32_t next = 0;
    DeviceId before = -1;
    bool copy_before = false;
    for (const Segment &seg : plan.segments) {
        ASSERT_FALSE(seg.launches.empty());
        EXPECT_TRUE(seg.is_copy() || copy_before || seg.device != before) << "segments that could be one";
        for (const Launch &l : seg.launches) {
            ASSERT_EQ(l.node, next);
            EXPECT_EQ(p.nodes[next].device, seg.device);
            const bool copy = std::holds_alternative<Copy>(p.nodes[next].op);
            EXPECT_EQ(l.kernel == nullptr, copy);
            EXPECT_EQ(plan.choices[next].chosen, l.kernel);
            EXPECT_EQ(plan.choices[next].node, next);
            if (l.kernel) {
                EXPECT_EQ(l.kernel->op, p.nodes[next].op.index());
                const std::span<const Kernel> table = devices[seg.device]->kernels();
                EXPECT_TRUE(l.kernel >= table.data() && l.kernel < table.data() + table.size());
            }
            next++;
        }
        before = seg.device, copy_before = seg.is_copy();
    }
    EXPECT_EQ(next, p.nodes.size());
    EXPECT_EQ(count<Copy>(p), 3U);  // the table and two residuals (at the second border nothing but the residual)
}

TEST(Plan, WithoutALegalRowSaysWhatWhereAndWhy) {
    Kernel narrow = contract_row("dev.contract.narrow", 0, {Format::Q4_0}),
           many = contract_row("dev.contract.many", 0, FormatSet::all());
    many.tokens.first = 8;
    TableBackend b("gadget", {narrow, many});
    Backend *devices[] = {&b};
    const One one;
    expect_words(error_of(ErrorKind::unsupported, [&] { (void)make_plan(one.h.p, devices, 2); }),
                 {"device gadget", "contract -> y", "(Q8_0)", "2 tokens", "dev.contract.narrow: does not read Q8_0",
                  "dev.contract.many: is for 8 tokens or more"});
    b.rows.clear();
    expect_words(error_of(ErrorKind::unsupported, [&] { (void)make_plan(one.h.p, devices, 2); }),
                 {"device gadget", "contract -> y", "it has no row for this operation"});
}

TEST(Plan, ExplainsEveryChoice) {
    Kernel fast = contract_row("dev.fast", 9, FormatSet::all()), slow = contract_row("dev.slow", 1, FormatSet::all());
    Kernel old = contract_row("dev.old", 5, {Format::Q4_0});
    TableBackend b("gadget", {slow, fast, old});
    Backend *devices[] = {&b};
    const One one;
    const Plan plan = make_plan(one.h.p, devices, 3);
    ASSERT_EQ(plan.choices.size(), 1U);
    EXPECT_EQ(plan.choices[0].chosen->name, "dev.fast");
    EXPECT_EQ(plan.choices[0].rejected.size(), 2U);
    // 16 x 64 weights of 34 bytes per 32; 3 tokens in and out; 2 * 3 * 16 * 64 flops.
    const double bytes = 16 * 64 / 32 * 34 + 3 * 64 * 4 + 3 * 16 * 4;
    expect_words(explain(one.h.p, plan, devices),
                 {"plan for 3 tokens", "levers: " + LeverSet::all().to_string(), "gadget", "Q8_0", "dev.fast",
                  "not dev.slow: legal, but of lower rank (1 < 9)", "not dev.old: does not read Q8_0",
                  fmt::format("{:.1f} kB", bytes / 1e3), fmt::format("{:.2f} Mflop", 2.0 * 3 * 16 * 64 / 1e6),
                  "1 launches in 1 segment;"});
}

TEST(Plan, ExplanationShowsCopiesAndTellsLikeLayersOnce) {
    Shape s = llama();
    s.layers = 6;
    Program p = forward(s);
    place(p, {{0, 0, 0, 1, 1, 1}});
    insert_copies(p);
    TableBackend a("left", full_table()), b("right", full_table());
    Backend *devices[] = {&a, &b};
    const std::string text = explain(p, make_plan(p, devices, 1), devices);
    expect_words(text, {"plan for 1 token,", "copy (copy -> 2.residual@1)", "copy (copy -> table@1)", "left", "right",
                        "more like those above", "segments;"});
    size_t attentions = 0;
    for (size_t at = 0; (at = text.find("attention    ", at)) != std::string::npos; at++) attentions++;
    EXPECT_EQ(attentions, 4U);  // name of the operation and of the row, once per device
}

TEST(Buckets, StartWhereARangeStartsOrHasEnded) {
    Kernel few = row<Add>("few"), mid = row<Add>("mid"), any = row<Add>("any");
    few.tokens = {1, 3}, mid.tokens = {8, 31};
    TableBackend a("a", {few, any}), b("b", {mid});
    Backend *both[] = {&a, &b}, *first[] = {&a};
    using Starts = std::vector<uint32_t>;
    EXPECT_EQ(token_buckets(both, 512), (Starts{1, 4, 8, 32}));
    EXPECT_EQ(token_buckets(both, 32), (Starts{1, 4, 8, 32}));
    EXPECT_EQ(token_buckets(both, 31), (Starts{1, 4, 8}));
    EXPECT_EQ(token_buckets(both, 3), (Starts{1}));
    EXPECT_EQ(token_buckets(both, 1), (Starts{1}));
    EXPECT_EQ(token_buckets(first, 512), (Starts{1, 4}));
    EXPECT_EQ(token_buckets({}, 512), (Starts{1}));
}

TEST(Buckets, LegalRowsAreTheSameWithinABucket) {
    std::vector<Kernel> rows;
    for (const auto &[lo, hi] : {std::pair{1U, 4U}, {3U, 9U}, {7U, 7U}, {10U, 4000U}, {2U, 0xFFFFFFFFU}}) {
        rows.push_back(contract_row("r", 0, FormatSet::all()));
        rows.back().tokens = {lo, hi};
    }
    TableBackend b("dev", rows);
    Backend *devices[] = {&b};
    const std::vector<uint32_t> starts = token_buckets(devices, 64);
    const One one;
    for (uint32_t m = 1, i = 0; m <= 64; m++) {
        if (i + 1 < starts.size() && starts[i + 1] == m) i++;
        EXPECT_EQ(legal_rows(one.h.p, one.op(), b, m), legal_rows(one.h.p, one.op(), b, starts[i])) << m;
    }
}

}  // namespace
}  // namespace ridge::test
