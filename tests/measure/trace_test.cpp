// Sums over traces, by hand and on a real run; and the file that shows them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "backend/cpu/cpu.h"
#include "core/error.h"
#include "measure/trace_file.h"
#include "measure/trace_summary.h"
#include "runtime/tiny_model.h"

namespace ridge {
namespace {

using std::chrono::microseconds;
using test::some_tokens;
using test::tiny_model;

// A quantised vector times two matrices, and an addition.
struct ByHand {
    Program p;
    ByHand() {
        const ValueId x = p.add_value({.name = "x", .cols = 256}),
                      q8 = p.add_value({.name = "3.x_q8", .type = DType::q8, .cols = 256}),
                      a = p.add_value({.name = "3.a", .cols = 64}), b = p.add_value({.name = "3.b", .cols = 64}),
                      sum = p.add_value({.name = "3.sum", .cols = 64});
        p.inputs = {x};
        const WeightId q4 = p.add_weight({.name = "a", .format = Format::Q4_K, .n = 64, .k = 256}),
                       q6 = p.add_weight({.name = "b", .format = Format::Q6_K, .n = 64, .k = 256});
        p.nodes.push_back({Quantize{x, q8}, 0, 3});
        for (auto [w, out] : {std::pair{q4, a}, {q6, b}}) {
            Contract c{.x = q8, .n_banks = 1};
            c.banks[0] = {w, kNone, out};
            p.nodes.push_back({c, 0, 3});
        }
        p.nodes.push_back({Add{a, b, sum}, 0, 3});
    }
};

LaunchTrace launch(uint32_t node, double start, double end, double busy) {
    return {.node = node, .start = start, .end = end, .busy = busy, .workers = 2, .tiles = 4};
}

KeptStep step(bool prompt, uint32_t tokens, int at_us, std::vector<LaunchTrace> launches) {
    KeptStep k;
    k.trace.began = TraceClock::time_point(microseconds(at_us));
    k.trace.prompt = prompt;
    k.trace.count.tokens = tokens;
    k.trace.wall = 100e-6;
    k.trace.logits = 5e-6;
    k.trace.workers = 2;
    k.trace.barriers = 4;
    k.trace.waiting = 7e-6;
    k.trace.overhead = 1e-6;
    k.trace.launches = std::move(launches);
    k.keeping = 2e-6;
    return k;
}

TEST(TraceSummary, ByHand) {
    const ByHand h;
    const auto launches = [] {
        return std::vector<LaunchTrace>{launch(0, 1e-6, 3e-6, 2e-6), launch(1, 4e-6, 34e-6, 58e-6),
                                        launch(2, 30e-6, 50e-6, 40e-6),  // a device that overlaps launches
                                        launch(3, 52e-6, 56e-6, 4e-6)};
    };
    const TraceSummary s =
        summarize(h.p, {step(true, 8, 0, launches()), step(true, 8, 110, launches()), step(false, 1, 230, launches()),
                        step(false, 1, 350, launches()), step(true, 8, 1000000, launches())});
    EXPECT_EQ(s.prompt.steps, 3U);
    EXPECT_EQ(s.prompt.tokens, 24U);
    EXPECT_EQ(s.answer.steps, 2U);
    EXPECT_EQ(s.answer.tokens, 2U);
    EXPECT_EQ(s.answer.launches, 8U);
    EXPECT_EQ(s.answer.barriers, 8U);
    EXPECT_NEAR(s.answer.wall, 200e-6, 1e-12);
    EXPECT_NEAR(s.answer.device, 2 * (2 + 46 + 4) * 1e-6, 1e-12) << "what overlaps counts once";
    EXPECT_NEAR(s.answer.gaps(), 2 * (100 - 52 - 5) * 1e-6, 1e-12);
    EXPECT_NEAR(s.answer.busy, 2 * 104e-6, 1e-12);
    EXPECT_NEAR(s.answer.waiting, 14e-6, 1e-12);
    EXPECT_NEAR(s.answer.worker_seconds, 400e-6, 1e-12);
    EXPECT_NEAR(s.answer.host, (20 - 2 + 20 - 2) * 1e-6, 1e-12) << "without what keeping the trace took";
    EXPECT_NEAR(s.answer.overhead, 6e-6, 1e-12);
    EXPECT_NEAR(s.prompt.host, 8e-6, 1e-12) << "nobody's time is the host's before a new prompt";

    ASSERT_EQ(s.answer.classes.size(), 4U);
    EXPECT_EQ(s.answer.classes[0].name, "contract Q4_K") << "the most time first";
    EXPECT_EQ(s.answer.classes[1].name, "contract Q6_K");
    const ClassTime &q4 = s.answer.classes[0];
    EXPECT_EQ(q4.op, kind<Contract>());
    EXPECT_EQ(q4.launches, 2U);
    EXPECT_NEAR(q4.seconds, 60e-6, 1e-12);
    EXPECT_NEAR(q4.busy, 116e-6, 1e-12);
    EXPECT_NEAR(q4.worker_seconds, 120e-6, 1e-12);
    EXPECT_EQ(q4.cost.weight_bytes, 2 * 64 * 144);
    EXPECT_EQ(q4.cost.flops, 2 * 2 * 64 * 256);
    EXPECT_NEAR(q4.multiply_adds_per_second(), 2 * 64 * 256 / 60e-6, 1);
    EXPECT_EQ(s.prompt.find("contract Q4_K")->cost.weight_bytes, 3 * 64 * 144) << "read once for all tokens";
    EXPECT_EQ(s.prompt.find("contract Q4_K")->cost.flops, 24 * 2 * 64 * 256);
    EXPECT_EQ(s.prompt.find("attention"), nullptr);

    const std::string text = to_string(s.answer, "answer");
    for (const char *words : {"answer: 2 tokens in 2 steps",
                              "wall 100.00 us = device 52.00 us + logits 5.00 us + gaps "
                              "43.00 us (43.0%); host between steps 18.00 us",
                              "launches 4.0, barriers 4.0", "busy 52.0%", "waiting 3.5%", "contract Q4_K"})
        EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
    EXPECT_EQ(text.find("experts"), std::string::npos);
    EXPECT_EQ(to_string(StepsTime{}, "answer"), "");
}

// What a device ran again to time it is neither the step's time nor the host's.
TEST(TraceSummary, TimeApartIsNobodys) {
    const ByHand h;
    KeptStep first = step(false, 1, 0, {launch(0, 1e-6, 3e-6, 2e-6)});
    first.trace.apart = 400e-6;
    const TraceSummary s = summarize(h.p, {first, step(false, 1, 510, {launch(0, 1e-6, 3e-6, 2e-6)})});
    EXPECT_NEAR(s.answer.wall, 200e-6, 1e-12);
    EXPECT_NEAR(s.answer.host, 8e-6, 1e-12);
}

TEST(TraceSummary, FullTiles) {
    const ByHand h;
    LaunchTrace l = launch(1, 1e-6, 3e-6, 2e-6);
    l.routed_rows = 60, l.tile_rows = 128;
    const TraceSummary s =
        summarize(h.p, {step(true, 8, 0, {l, launch(2, 4e-6, 5e-6, 1e-6)}), step(true, 8, 110, {l})});
    EXPECT_EQ(s.prompt.find("contract Q4_K")->routed_rows, 120U);
    EXPECT_EQ(s.prompt.find("contract Q4_K")->tile_rows, 256U);
    const std::string text = to_string(s.prompt, "prompt");
    EXPECT_NE(text.find("contract Q4_K: tiles 46.9% full"), std::string::npos) << text;
    EXPECT_EQ(text.find("contract Q6_K: tiles"), std::string::npos) << text;
}

TEST(TraceSummary, Names) {
    ByHand h;
    Program &p = h.p;
    EXPECT_EQ(launch_name(p, p.nodes[1]), "3.a");
    const StateId k = p.add_state({.name = "3.k", .cols = 64});
    EXPECT_EQ(launch_name(p, {KvWrite{3, 3, k, k}, 0, 3}), "3.kv_write");
    Contract c = std::get<Contract>(p.nodes[1].op);
    c.n_banks = 3;
    c.banks[1] = std::get<Contract>(p.nodes[2].op).banks[0];
    c.banks[2] = c.banks[0];
    EXPECT_EQ(class_name(p, c), "contract Q4_K+Q6_K");
    c.ids = 1;
    EXPECT_EQ(class_name(p, c), "contract Q4_K+Q6_K experts");
    EXPECT_EQ(class_name(p, Embed{0, 1}), "embed Q4_K");
    EXPECT_EQ(class_name(p, p.nodes[3].op), "add");
}

struct Traced {
    std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 2});
    WeightStore weights;
    std::unique_ptr<Session> session;
    TraceKeeper kept;
    Traced(const char *like, size_t prompt, int32_t answer) {
        session = test::session_of(tiny_model(like), {cpu.get()}, weights, {.context = 64, .batch = 16, .map = {}});
        session->trace_to([this](const StepTrace &t) { kept.add(t); });
        session->evaluate(some_tokens(prompt));
        for (int32_t i = 0; i < answer; i++) session->evaluate({&i, 1});
    }
    const Program &program() const { return session->engine().program(); }
};

TEST(TraceSummary, OfARunAddsUp) {
    for (const char *like : {"tiny-qwen3", "tiny-qwen3moe"}) {
        const Traced run(like, 20, 5);
        const TraceSummary s = summarize(run.program(), run.kept.steps());
        EXPECT_EQ(run.kept.left_out(), 0U);
        EXPECT_EQ(s.prompt.steps, 2U);
        EXPECT_EQ(s.prompt.tokens, 20U);
        EXPECT_EQ(s.answer.steps, 5U);
        EXPECT_EQ(s.answer.launches, 5 * run.program().nodes.size());
        for (const StepsTime *t : {&s.prompt, &s.answer}) {
            EXPECT_GT(t->device, 0);
            EXPECT_GE(t->gaps(), 0);
            EXPECT_GT(t->host, 0);
            EXPECT_LE(t->busy + t->waiting, t->worker_seconds);
            double seconds = 0, launches = 0;
            for (const ClassTime &c : t->classes) seconds += c.seconds, launches += static_cast<double>(c.launches);
            EXPECT_NEAR(seconds, t->device, 1e-9) << "on the CPU launches do not overlap";
            EXPECT_EQ(launches, static_cast<double>(t->launches));
            const bool is_moe = std::string(like) == "tiny-qwen3moe";
            EXPECT_EQ(t->experts_counted > 0, is_moe);
            EXPECT_EQ(t->experts_expected, 0U);
        }
    }
}

class TemporaryFile : public testing::Test {
  protected:
    ~TemporaryFile() override { std::filesystem::remove(path_); }
    nlohmann::json read() const {
        std::ifstream in(path_);
        return nlohmann::json::parse(in);
    }
    std::filesystem::path path_ =
        std::filesystem::temp_directory_path() / ("ridge_trace_" + std::to_string(getpid()) + ".json");
};
using TraceFileTest = TemporaryFile;

TEST_F(TraceFileTest, HasEveryLaunch) {
    const Traced run("tiny-qwen3moe", 20, 3);
    {
        TraceFile file(path_);
        file.add("first \"section\"", run.program(), {"cpu: \\ a device"}, run.kept.steps());
        file.add("second", run.program(), {"cpu"}, run.kept.steps());
        file.add("nothing ran", run.program(), {"cpu"}, {});
        file.finish();
    }
    const nlohmann::json out = read();
    size_t launches = 0;
    for (const KeptStep &k : run.kept.steps()) launches += k.trace.launches.size();
    size_t found = 0, steps = 0, hosts = 0;
    std::set<std::string> processes, names;
    double last = -1;
    for (const auto &e : out.at("traceEvents")) {
        if (e.at("name") == "process_name") processes.insert(e.at("args").at("name"));
        if (e.at("ph") != "X") continue;
        EXPECT_GE(e.at("dur").get<double>(), 0);
        if (e.at("tid") == 1) steps++;
        if (e.at("tid") == 2) hosts++;
        if (e.at("tid") != 3 || e.at("pid") != 1) continue;
        found++;
        names.insert(e.at("name"));
        EXPECT_GE(e.at("ts").get<double>(), last) << "in the order they ran";
        last = e.at("ts");
        const auto &args = e.at("args");
        EXPECT_GT(args.at("bytes").get<double>(), 0);
        EXPECT_GE(args.at("waiting_us").get<double>(), 0);
        EXPECT_EQ(args.at("row").get<std::string>().rfind("cpu.", 0), 0U);
        EXPECT_EQ(args.contains("experts"), e.at("cat").get<std::string>().find("experts") != std::string::npos);
    }
    EXPECT_EQ(found, launches);
    EXPECT_EQ(steps, 2 * run.kept.steps().size());
    EXPECT_EQ(hosts, 2 * (run.kept.steps().size() - 1));
    EXPECT_EQ(processes, (std::set<std::string>{"first \"section\"", "second", "nothing ran"}));
    EXPECT_TRUE(names.contains("1.ffn_out")) << out.dump(1).substr(0, 2000);
}

TEST_F(TraceFileTest, LeavesOutTimeApart) {
    const ByHand h;
    KeptStep first = step(false, 1, 0, {launch(0, 1e-6, 3e-6, 2e-6)});
    first.trace.apart = 400e-6;
    {
        TraceFile file(path_);
        file.add("steps", h.p, {"gpu"}, {first, step(false, 1, 510, {launch(0, 1e-6, 3e-6, 2e-6)})});
        file.finish();
    }
    const nlohmann::json out = read();
    std::vector<double> steps, hosts;
    for (const auto &e : out.at("traceEvents")) {
        if (e.at("ph") != "X") continue;
        if (e.at("tid") == 1) steps.push_back(e.at("ts"));
        if (e.at("tid") == 2) hosts.push_back(e.at("dur"));
    }
    EXPECT_EQ(steps, (std::vector<double>{0, 110}));
    EXPECT_EQ(hosts, std::vector<double>{10});
}

TEST_F(TraceFileTest, ThatCannotBeWrittenIsAnError) {
    const auto kind_of = [](auto &&f) {
        try {
            f();
        } catch (const Error &e) {
            EXPECT_NE(std::string(e.what()).find("cannot write the trace"), std::string::npos) << e.what();
            return e.exit_code();
        }
        return 0;
    };
    EXPECT_EQ(kind_of([] { TraceFile("/nowhere/trace.json"); }), 3);
    { const TraceFile unfinished(path_); }
    EXPECT_FALSE(std::filesystem::exists(path_));
    if (!std::filesystem::exists("/dev/full")) return;
    EXPECT_EQ(kind_of([] { TraceFile("/dev/full").finish(); }), 3);
}

}  // namespace
}  // namespace ridge
