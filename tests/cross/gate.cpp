// ridge_gate: `ridge gate` without whole models, for machines that are only emulated here. Takes --op, --format, --row,
// --quick and -t, as `ridge gate` does.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "backend/backends.h"
#include "core/error.h"
#include "measure/gate.h"

namespace {

int run(int argc, char **argv) {
    ridge::GateOptions options;
    unsigned threads = 0;
    for (int i = 1; i < argc; i++) {
        const std::string flag = argv[i];
        const auto value = [&] {
            if (i + 1 == argc) ridge::fail(ridge::ErrorKind::usage, "{} wants a value", flag);
            return std::string(argv[++i]);
        };
        if (flag == "--quick") {
            options.quick = true;
        } else if (flag == "--op") {
            options.op = value();
        } else if (flag == "--row") {
            options.row = value();
        } else if (flag == "-t") {
            threads = static_cast<unsigned>(std::atoi(value().c_str()));
        } else if (flag == "--format") {
            const std::string name = value();
            const ridge::FormatInfo *f = ridge::find_format(std::string_view(name));
            if (!f) ridge::fail(ridge::ErrorKind::usage, "--format {}: there is no such format", name);
            options.format = f->id;
        } else {
            ridge::fail(ridge::ErrorKind::usage, "{}: expected --op, --format, --row, --quick or -t", flag);
        }
    }
    const auto device = ridge::open_backend("cpu", {.threads = threads});
    std::printf("%s\n", device->info().description.c_str());
    ridge::GateReport report = ridge::gate_formats(options);
    report.append(ridge::gate_rows(*device, options));
    report.append(ridge::gate_fusions(*device, options));
    std::fputs(ridge::to_string(report).c_str(), stdout);
    return report.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "ridge_gate: %s\n", e.what());
        return 2;
    }
}
