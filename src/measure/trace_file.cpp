#include "measure/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"
#include "gguf/printable.h"

namespace ridge {
namespace {

constexpr unsigned kSteps = 1, kHost = 2, kDevices = 3;  // tracks; of device d kDevices + d

std::string json_string(std::string_view text) {
    return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string meta(unsigned section, unsigned track, std::string_view what, std::string_view name) {
    return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}}}})", section, track, what,
                       json_string(name));
}

// `args` are complete members of an object.
std::string span(unsigned section, unsigned track, const std::string &quoted_name, const std::string &quoted_category,
                 double start, double end, const std::string &args) {
    return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
                       section, track, quoted_name, quoted_category, start * 1e6, (end - start) * 1e6, args);
}

std::string busy_workers(unsigned section, double at, double workers) {
    return fmt::format(R"({{"ph":"C","pid":{},"tid":0,"name":"busy workers","ts":{:.3f},"args":{{"workers":{:.2f}}}}})",
                       section, at * 1e6, workers);
}

std::string args_of(const Program &p, const StepTrace &t, const LaunchTrace &l) {
    const Op &op = p.nodes[l.node].op;
    const Cost c = cost(p, op, t.count_of(p, l));
    const double seconds = l.end - l.start;
    std::string args = fmt::format(
        R"("row":{},"layer":{},"bytes":{:.0f},"weight_bytes":{:.0f},"multiply_adds":{:.0f},"GB/s":{:.3f},"tiles":{},)"
        R"("workers":{},"busy_us":{:.3f},"waiting_us":{:.3f})",
        json_string(l.kernel ? l.kernel->name : "copy"), p.nodes[l.node].layer, c.bytes(), c.weight_bytes, c.flops / 2,
        seconds > 0 ? c.bytes() / seconds / 1e9 : 0, l.tiles, l.workers, l.busy * 1e6,
        std::max(0.0, seconds * l.workers - l.busy) * 1e6);
    if (l.experts > 0) args += fmt::format(R"(,"experts":{})", l.experts);
    if (l.tile_rows > 0) args += fmt::format(R"(,"routed_rows":{},"tile_rows":{})", l.routed_rows, l.tile_rows);
    return args;
}

}  // namespace

TraceFile::TraceFile(const std::filesystem::path &path)
    : path_(path), file_(std::fopen(path.c_str(), "wb"), std::fclose) {
    checked(file_ != nullptr);
    checked(std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", file_.get()) >= 0);
}

TraceFile::~TraceFile() {
    std::error_code ignored;
    if (file_ && std::filesystem::is_regular_file(path_, ignored)) std::filesystem::remove(path_, ignored);
}

void TraceFile::checked(bool fine) const {
    if (!fine)
        fail(ErrorKind::file, "cannot write the trace {}: {}", gguf::printable(path_.string()), std::strerror(errno));
}

void TraceFile::put(const std::string &event) {
    if (!first_) checked(std::fputs(",\n", file_.get()) >= 0);
    first_ = false;
    checked(std::fwrite(event.data(), 1, event.size(), file_.get()) == event.size());
}

void TraceFile::add(std::string_view title, const Program &p, const std::vector<std::string> &devices,
                    const std::vector<KeptStep> &steps) {
    const unsigned section = ++sections_;
    put(meta(section, 0, "process_name", title));
    put(meta(section, kSteps, "thread_name", "steps"));
    put(meta(section, kHost, "thread_name", "host between steps"));
    for (size_t d = 0; d < devices.size(); d++)
        put(meta(section, kDevices + static_cast<unsigned>(d), "thread_name", devices[d]));
    if (steps.empty()) return;

    std::vector<std::string> names, classes;
    for (const Node &n : p.nodes) {
        names.push_back(json_string(launch_name(p, n)));
        classes.push_back(json_string(class_name(p, n.op)));
    }
    const auto seconds_at = [&](TraceClock::time_point t) { return steps[0].trace.since_began(t); };
    double ended = 0;  // of the step before
    double apart = 0;  // of all before: time that is left out, as if it had not passed
    for (size_t i = 0; i < steps.size(); i++) {
        const StepTrace &t = steps[i].trace;
        const double at = seconds_at(t.began) - apart;
        if (i > 0)
            put(span(section, kHost, "\"host\"", "\"host\"", ended, at,
                     fmt::format(R"("keeping_the_trace_us":{:.3f})", steps[i - 1].keeping * 1e6)));
        put(span(section, kSteps, t.prompt ? "\"prompt\"" : "\"token\"", "\"step\"", at, at + t.wall,
                 fmt::format(R"("step":{},"tokens":{},"outputs":{},"kv_rows":{:.0f},"launches":{},"barriers":{},)"
                             R"("waiting_us":{:.3f},"logits_us":{:.3f},"tracing_us":{:.3f})",
                             i, t.count.tokens, t.count.outputs, t.count.kv_rows, t.launches.size(), t.barriers,
                             t.waiting * 1e6, t.logits * 1e6, t.overhead * 1e6)));
        for (const LaunchTrace &l : t.launches) {
            put(span(section, kDevices + static_cast<unsigned>(l.device), names[l.node], classes[l.node], at + l.start,
                     at + l.end, args_of(p, t, l)));
            put(busy_workers(section, at + l.start, l.end > l.start ? l.busy / (l.end - l.start) : l.workers));
        }
        ended = at + t.wall, apart += t.apart;
        put(busy_workers(section, ended, 0));
    }
}

void TraceFile::finish() {
    checked(std::fputs("\n]}\n", file_.get()) >= 0);
    checked(std::fclose(file_.release()) == 0);
}

}  // namespace ridge
