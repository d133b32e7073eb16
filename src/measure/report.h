// One self-contained page about how fast a model runs on a device and why: text, tables and figures as SVG, no scripts,
// nothing fetched. What it shows is measured by others (explain.h, ab.h, bench.h); this only draws it.
#pragma once

#include <string>
#include <vector>

namespace ridge::report {

struct Bar {
    std::string name;
    double seconds = 0;
};

// Time per token of a phase, by kernel class; what is left of `wall` is time outside of launches.
struct Phase {
    std::string name;     // "decode", "prefill (512 tokens)"
    std::string verdict;  // "bandwidth-roofline: ..."
    double wall = 0;      // seconds per token
    std::vector<Bar> classes;
};

// A kernel class on the roofline plot.
struct Point {
    std::string name;
    std::string phase;
    double bytes = 0, multiply_adds = 0, seconds = 0;
};

struct Roof {
    double read = 0;  // bytes per second
    struct Rate {
        std::string name;
        double per_second = 0;  // multiply-adds
    };
    std::vector<Rate> rates;  // "int8", "f32"
};

// An A/B comparison: ratios of the speed with the lever to that without.
struct Comparison {
    std::string lever, test;
    double ratio = 1, low = 1, high = 1;
    double predicted = 0;  // 0: none
    double noise = 0;      // of A against A, as a share
    std::string verdict;   // "helps", "flat", "hurts"
};

// What a launch that reads so many bytes gets.
struct SizePoint {
    double bytes = 0, bytes_per_second = 0;
};

struct Page {
    std::string title, device, model, date, command;
    std::vector<std::string> notes;  // "contended: ...", "levers: ..."
    Roof roof;
    std::vector<Phase> phases;
    std::vector<Point> points;
    std::vector<Comparison> comparisons;
    std::vector<SizePoint> sizes;
};

// The page as HTML. Text is escaped; sections without data are left out.
std::string html(const Page &page);

}  // namespace ridge::report
