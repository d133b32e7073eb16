#include "cli/bench_output.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "cli/terminal.h"

namespace ridge {
namespace {

using bench::KernelOptions;
using bench::KernelResult;
using bench::ModelResult;
using bench::Roof;

void print(const std::string &text) { write_out(text); }

std::string shape_of(const KernelOptions &o) {
    if (o.op == "attention") return fmt::format("{} heads of {} over {} KV heads", o.heads, o.head_dim, o.kv_heads);
    return fmt::format("n={} k={}{}", o.n, o.k,
                       o.experts > 0 ? fmt::format(", {} of {} experts", o.slots, o.experts) : std::string());
}

OrderedJson as_json(const KernelResult &r, const Roof &roof) {
    return {{"row", r.row},
            {"operand", r.point},
            {"input", r.input},
            {"m", r.tokens},
            {"planned", r.planned},
            {"seconds", r.seconds.median()},
            {"seconds_least", r.seconds.least()},
            {"seconds_most", r.seconds.most()},
            {"rounds", r.seconds.count()},
            {"samples", r.seconds.in_order()},
            {"copies", r.copies},
            {"bytes", r.bytes},
            {"multiply_adds", r.multiply_adds},
            {"bytes_per_second", r.bytes_per_second()},
            {"multiply_adds_per_second", r.multiply_adds_per_second()},
            {"share_of_read", r.read_share(roof)},
            {"share_of_compute", r.compute_share(roof)},
            {"clock_hz", r.clock},
            {"contended", r.contended}};
}

// The names that llama-bench has where it has the same.
OrderedJson as_json(const ModelResult &r, const Roof &roof) {
    return {{"test", r.test()},
            {"n_prompt", r.prompt},
            {"n_gen", r.answer},
            {"n_depth", r.depth},
            {"levers", r.levers.to_string()},
            {"avg_ts", r.rate.mean()},
            {"stddev_ts", r.rate.deviation()},
            {"median_ts", r.rate.median()},
            {"least_ts", r.rate.least()},
            {"most_ts", r.rate.most()},
            {"samples_ts", r.rate.in_order()},
            {"bytes_per_token", r.bytes},
            {"int8_multiply_adds_per_token", r.int8},
            {"f32_multiply_adds_per_token", r.f32},
            {"share_of_read", r.read_share(roof)},
            {"share_of_compute", r.compute_share(roof)},
            {"clock_hz", r.clock},
            {"contended", r.contended}};
}

std::string json_line(const BenchHeader &header, const OrderedJson &row) {
    OrderedJson line = as_json(header);
    line.update(row);
    return line.dump() + "\n";
}

// What is known of the processors' clock; nothing where that is nothing.
std::string clock_text(double before, double during) {
    if (before <= 0 || during <= 0) return {};
    return fmt::format("processor clock: {:.2f} GHz before, {:.2f} GHz at the end of the last row\n", before / 1e9,
                       during / 1e9);
}

std::string contended_note(const std::string &why) { return why.empty() ? "" : " contended |"; }

}  // namespace

std::string ceilings_text(const BenchHeader &h) {
    const CeilingFigures &c = h.ceilings;
    if (c.list.empty()) return "ceilings: this backend has no way to measure them\n";
    const auto both = [&](const char *name) {
        const double all = c.get(name), one = c.get(name, 1);
        return h.threads == 1 || one == 0 ? fmt::format("{:.1f}", all / 1e9)
                                          : fmt::format("{:.1f} ({:.1f} with 1 thread)", all / 1e9, one / 1e9);
    };
    const std::string threads =
        c.get("read", 1) == 0 ? std::string() : fmt::format(", {} thread{}", h.threads, h.threads == 1 ? "" : "s");
    return fmt::format("ceilings ({}{}): read {} GB/s; GMAC/s: int8 {}, f32 {}{}\n", c.instructions, threads,
                       both("read"), both("int8"), both("f32"), c.get("bf16") > 0 ? ", bf16 " + both("bf16") : "");
}

std::string csv_line(const OrderedJson &row, bool names) {
    std::string line;
    for (const auto &[key, value] : row.items()) {
        if (value.is_structured()) continue;
        line += (line.empty() ? "" : ",") + (names ? key : value.dump());
    }
    return line + "\n";
}

OrderedJson as_json(const BenchHeader &h) {
    const auto both = [&](const char *name) {
        return OrderedJson{{"one", h.ceilings.get(name, 1)}, {"all", h.ceilings.get(name)}};
    };
    return {{"device", h.device},
            {"clock", h.clock},
            {"contended", h.busy},
            {"clock_hz_before", h.clock_before},
            {"ceilings",
             {{"isa", h.ceilings.instructions},
              {"threads", h.threads},
              {"read_bytes_per_second", both("read")},
              {"int8_multiply_adds_per_second", both("int8")},
              {"f32_multiply_adds_per_second", both("f32")},
              {"bf16_multiply_adds_per_second", both("bf16")}}}};
}

KernelTable::KernelTable(BenchForm form, BenchHeader header, const KernelOptions &options, Roof roof)
    : form_(form), header_(std::move(header)), roof_(roof) {
    if (form == BenchForm::json) {
        out_ = as_json(header_);
        out_["op"] = options.op, out_["shape"] = shape_of(options), out_["rows"] = OrderedJson::array();
    }
    if (form != BenchForm::table) return;
    print(fmt::format("{}{}; {}, {}; {}\n\n", ceilings_text(header_), header_.device, options.op, shape_of(options),
                      header_.clock));
    print(fmt::format("| {:<33} | {:<10} | {:<5} | {:>4} | {:>10} | {:>21} | {:>6} | {:>6} | {:>7} | {:>5} | {:>5} |\n",
                      "row", "operand", "input", "m", "us", "least - most", "rounds", "GB/s", "GMAC/s", "read",
                      "comp."));
    print(fmt::format("|{:-<35}|{:-<12}|{:-<7}|{:->5}:|{:->11}:|{:->22}:|{:->7}:|{:->7}:|{:->8}:|{:->6}:|{:->6}:|\n",
                      "", "", "", "", "", "", "", "", "", "", ""));
}

void KernelTable::add(KernelResult r) {
    if (r.contended.empty()) r.contended = header_.busy;
    clock_ = r.clock;
    if (form_ == BenchForm::json) {
        out_["rows"].push_back(as_json(r, roof_));
        return;
    }
    if (form_ == BenchForm::jsonl) return print(json_line(header_, as_json(r, roof_)));
    if (form_ == BenchForm::csv) {
        const OrderedJson row = as_json(r, roof_);
        if (out_.is_null()) print(csv_line(row, true)), out_ = true;
        print(csv_line(row, false));
        return;
    }
    const auto us = [](double seconds) { return fmt::format("{:.1f}", seconds * 1e6); };
    print(
        fmt::format("| {:<33} | {:<10} | {:<5} | {:>4} | {:>10} | {:>21} | {:>6} | {:>6.2f} | {:>7.1f} | {:>4.0f}% | "
                    "{:>4.0f}% |{}\n",
                    r.row + (r.planned ? " *" : ""), r.point, r.input, r.tokens, us(r.seconds.median()),
                    us(r.seconds.least()) + " - " + us(r.seconds.most()), r.seconds.count(), r.bytes_per_second() / 1e9,
                    r.multiply_adds_per_second() / 1e9, 100 * r.read_share(roof_), 100 * r.compute_share(roof_),
                    contended_note(r.contended)));
}

void KernelTable::finish() {
    if (form_ == BenchForm::json) print(out_.dump(2) + "\n");
    if (form_ != BenchForm::table) return;
    print("\nread, comp.: share of the ceilings; *: the row that a plan takes\n");
    print(clock_text(header_.clock_before, clock_));
    if (!header_.busy.empty()) print(fmt::format("contended: {}\n", header_.busy));
}

ModelTable::ModelTable(BenchForm form, BenchHeader header, Roof roof)
    : form_(form), header_(std::move(header)), roof_(roof) {
    if (form == BenchForm::json) out_ = as_json(header_), out_["results"] = OrderedJson::array();
    if (form != BenchForm::table) return;
    print(fmt::format("{}{}\n\n", ceilings_text(header_), header_.device));
    print(fmt::format("| {:<28} | {:>10} | {:>8} | {:<16} | {:>14} | {:>8} | {:>17} | {:>5} | {:>5} |\n", "model",
                      "size", "params", "levers", "test", "t/s", "least - most", "read", "comp."));
    print(fmt::format("|{:-<30}|{:->11}:|{:->9}:|{:-<18}|{:->15}:|{:->9}:|{:->18}:|{:->6}:|{:->6}:|\n", "", "", "", "",
                      "", "", "", "", ""));
}

void ModelTable::begin_model(const Model &model, const std::string &path, double load_seconds) {
    uint64_t weights = 0, bytes = 0;
    for (const gguf::Tensor &t : model.file().tensors()) weights += t.elements(), bytes += t.bytes;
    model_ = {{"model", std::filesystem::path(path).filename().string()},
              {"model_filename", path},
              {"model_size", bytes},
              {"model_n_params", weights},
              {"load_seconds", load_seconds}};
}

void ModelTable::add(ModelResult r) {
    if (r.contended.empty()) r.contended = header_.busy;
    clock_ = r.clock;
    OrderedJson row = model_;
    row.update(as_json(r, roof_));
    if (form_ == BenchForm::jsonl) return print(json_line(header_, row));
    if (form_ == BenchForm::json) {
        out_["results"].push_back(std::move(row));
        return;
    }
    if (form_ == BenchForm::csv) {
        if (out_.is_null()) print(csv_line(row, true)), out_ = true;
        print(csv_line(row, false));
        return;
    }
    std::string name = std::filesystem::path(model_["model"].get<std::string>()).stem().string();
    print(fmt::format(
        "| {:<28} | {:>6.2f} GiB | {:>6.2f} B | {:<16} | {:>14} | {:>8.2f} | {:>17} | {:>4.0f}% | "
        "{:>4.0f}% |{}\n",
        printable(name), model_["model_size"].get<double>() / (1 << 30), model_["model_n_params"].get<double>() / 1e9,
        r.levers.to_string(), r.test(), r.rate.median(), fmt::format("{:.2f} - {:.2f}", r.rate.least(), r.rate.most()),
        100 * r.read_share(roof_), 100 * r.compute_share(roof_), contended_note(r.contended)));
}

void ModelTable::finish() {
    if (form_ == BenchForm::json) print(out_.dump(2) + "\n");
    if (form_ != BenchForm::table) return;
    print("\nt/s: median; read, comp.: the share of the time that the ceilings need\n");
    print(clock_text(header_.clock_before, clock_));
    if (!header_.busy.empty()) print(fmt::format("contended: {}\n", header_.busy));
}

}  // namespace ridge
