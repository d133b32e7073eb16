#include "measure/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace ridge::report {
namespace {

std::string escape(std::string_view text) {
    std::string out;
    for (const char c : text) switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += c;
        }
    return out;
}

// Told apart in print and by the colour-blind (Okabe and Ito's palette, then greys).
constexpr std::array<const char *, 9> kColours = {"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
                                                  "#d55e00", "#b3a100", "#555555", "#999999"};
const char *colour(size_t i) { return kColours[i % kColours.size()]; }

// A number with its unit: three digits, or fewer where the rest are zeros and `round`.
std::string number(double v, const char *unit, bool round = false) {
    static constexpr std::array<std::pair<double, const char *>, 7> kScales = {
        {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}, {1e-3, "m"}, {1e-6, "&micro;"}}};
    if (v == 0) return fmt::format("0 {}", unit);
    const auto *s = kScales.begin();
    while (s + 1 != kScales.end() && std::fabs(v) < s->first * 0.9995) s++;
    const double x = v / s->first;
    const int digits = std::fabs(x) >= 99.95 ? 0 : std::fabs(x) >= 9.995 ? 1 : 2;
    return round ? fmt::format("{:.3g} {}{}", x, s->second, unit)
                 : fmt::format("{:.{}f} {}{}", x, digits, s->second, unit);
}
std::string round_number(double v, const char *unit) { return number(v, unit, true); }

// A plot's frame: data coordinates to the picture's.
class Axes {
  public:
    struct Range {
        double low, high;
        bool log;
        // 0 .. 1
        double place(double v) const {
            if (!log) return (v - low) / (high - low);
            return (std::log10(v) - std::log10(low)) / (std::log10(high) - std::log10(low));
        }
    };
    Axes(Range x, Range y, double width, double height) : x_(x), y_(y), width_(width), height_(height) {}
    double x(double v) const { return kLeft + x_.place(v) * (width_ - kLeft - kRight); }
    double y(double v) const { return height_ - kBottom - y_.place(v) * (height_ - kTop - kBottom); }
    double left() const { return kLeft; }
    double right() const { return width_ - kRight; }
    double top() const { return kTop; }
    double bottom() const { return height_ - kBottom; }

    std::string begin(std::string_view label) const {
        return fmt::format("<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\" style=\"max-width:{0}px\">\n",
                           width_, height_, escape(label));
    }
    // Grid lines and their labels.
    template <class Label>
    std::string grid(Label &&x_label, Label &&y_label, std::string_view x_title, std::string_view y_title) const {
        std::string s;
        for (const double v : ticks(x_))
            s += fmt::format(
                "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" "
                "text-anchor=\"middle\">{4}</text>\n",
                x(v), top(), bottom(), bottom() + 16, x_label(v));
        for (const double v : ticks(y_))
            s += fmt::format(
                "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}H{2:.1f}\"/><text x=\"{3:.1f}\" y=\"{4:.1f}\" "
                "text-anchor=\"end\">{5}</text>\n",
                left(), y(v), right(), left() - 6, y(v) + 4, y_label(v));
        s += fmt::format("<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                         (left() + right()) / 2, height_ - 8, escape(x_title));
        s += fmt::format("<text class=\"title\" x=\"{0:.1f}\" y=\"{1:.1f}\">{2}</text>\n", 8.0, 14.0, escape(y_title));
        return s;
    }

  private:
    static constexpr double kLeft = 84, kRight = 24, kTop = 26, kBottom = 48;
    // Powers of ten, or some five steps of 1, 2 or 5 times a power.
    static std::vector<double> ticks(const Range &r) {
        std::vector<double> t;
        if (r.log) {
            for (double v = std::pow(10, std::ceil(std::log10(r.low) - 1e-9)); v <= r.high * 1.0001; v *= 10)
                t.push_back(v);
            return t;
        }
        const double rough = (r.high - r.low) / 5, power = std::pow(10, std::floor(std::log10(rough)));
        const double step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
        for (double v = std::ceil(r.low / step) * step; v <= r.high + step * 1e-6; v += step) t.push_back(v);
        return t;
    }
    Range x_, y_;
    double width_, height_;
};

double floor_power(double v) { return std::pow(10, std::floor(std::log10(v))); }
double ceil_power(double v) { return std::pow(10, std::ceil(std::log10(v))); }

// ---- Sections

std::string roofline(const Page &p) {
    std::vector<Point> points;
    for (const Point &q : p.points)
        if (q.bytes > 0 && q.multiply_adds > 0 && q.seconds > 0) points.push_back(q);
    if (points.empty() || p.roof.read <= 0 || p.roof.rates.empty()) return {};
    double most = 0, x_low = 1e30, x_high = 0, y_low = 1e30;
    for (const Roof::Rate &r : p.roof.rates) most = std::max(most, r.per_second);
    for (const Point &q : points) {
        x_low = std::min(x_low, q.multiply_adds / q.bytes), x_high = std::max(x_high, q.multiply_adds / q.bytes);
        y_low = std::min(y_low, q.multiply_adds / q.seconds);
    }
    x_high = std::max(x_high, 4 * most / p.roof.read);
    const Axes::Range xs{floor_power(x_low), ceil_power(x_high), true},
        ys{floor_power(y_low), ceil_power(most * 1.2), true};
    const Axes a(xs, ys, 860, 420);
    std::string s = a.begin("Roofline plot");
    s += a.grid<std::string (*)(double)>([](double v) { return fmt::format("{:g}", v); },
                                         [](double v) { return round_number(v, ""); },
                                         "multiply-adds per byte read from memory", "multiply-adds per second");
    // The slope, up to the highest roof; and each roof from there on.
    const double from = std::max(xs.low, ys.low / p.roof.read);
    s += fmt::format("<path class=\"roof\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", a.x(from), a.y(from * p.roof.read),
                     a.x(most / p.roof.read), a.y(most));
    const double label_x = std::max(from * 1.6, xs.low * 2);
    s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" class=\"roofname\">{}</text>\n",
                     a.x(label_x) - 8, a.y(label_x * p.roof.read) - 8, number(p.roof.read, "B/s"));
    for (const Roof::Rate &r : p.roof.rates) {
        s += fmt::format("<path class=\"roof\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", a.x(r.per_second / p.roof.read),
                         a.y(r.per_second), a.right());
        s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" class=\"roofname\">{} {}/s</text>\n",
                         a.right() - 4, a.y(r.per_second) - 6, escape(r.name), number(r.per_second, ""));
    }
    std::map<std::string, size_t> phases;
    for (const Point &q : points) phases.emplace(q.phase, phases.size());
    double longest = 0;
    for (const Point &q : points) longest = std::max(longest, q.seconds);
    for (const Point &q : points) {
        const double x = q.multiply_adds / q.bytes, y = q.multiply_adds / q.seconds;
        s += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\" fill-opacity=\"0.75\"><title>{}, {}: "
            "{}, {}</title></circle>\n",
            a.x(x), a.y(y), 3 + 9 * std::sqrt(q.seconds / longest), colour(phases[q.phase]), escape(q.name),
            escape(q.phase), number(q.bytes / q.seconds, "B/s"), number(y, "/s"));
    }
    // Names of the classes that take most of the time, the longest first, where they do not cover each other.
    std::vector<Point> named = points;
    std::sort(named.begin(), named.end(), [](const Point &l, const Point &r) { return l.seconds > r.seconds; });
    std::vector<std::pair<double, double>> taken;
    for (const Point &q : named) {
        if (taken.size() == 10) break;
        const double x = a.x(q.multiply_adds / q.bytes), y = a.y(q.multiply_adds / q.seconds);
        const bool free = std::none_of(taken.begin(), taken.end(), [&](auto &t) {
            return std::fabs(t.first - x) < 150 && std::fabs(t.second - y) < 14;
        });
        if (!free) continue;
        taken.emplace_back(x, y);
        const bool left = x > a.right() - 170;
        s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", left ? x - 14 : x + 14,
                         y + 4, left ? "end" : "start", escape(q.name));
    }
    double key = a.top() + 14;
    for (const auto &[name, i] : phases) {
        s += fmt::format(
            "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"5\" fill=\"{2}\"/><text x=\"{3:.1f}\" y=\"{4:.1f}\">{5}"
            "</text>\n",
            a.left() + 14, key, colour(i), a.left() + 24, key + 4, escape(name));
        key += 18;
    }
    s += "</svg>\n";
    return "<h2>Roofline</h2>\n<p>A point is a kernel class in a phase; its area is the time it takes of a step. On "
           "the slope "
           "memory binds, under a roof arithmetic does; far from both, something else.</p>\n" +
           s;
}

constexpr const char *kOutside = "#e8e8e8";

std::string time_per_token(const Page &p) {
    if (p.phases.empty()) return {};
    // One colour for a class in all phases; the longest first.
    std::map<std::string, double> total;
    for (const Phase &f : p.phases)
        for (const Bar &b : f.classes)
            if (f.wall > 0) total[b.name] += b.seconds / f.wall;
    std::vector<std::pair<std::string, double>> order(total.begin(), total.end());
    std::sort(order.begin(), order.end(), [](const auto &l, const auto &r) { return l.second > r.second; });
    std::map<std::string, size_t> index;
    for (const auto &[name, share] : order) index.emplace(name, index.size());
    const auto fill = [&](const std::string &name) {
        const size_t i = index[name];
        return std::string(i + 1 < kColours.size() ? colour(i) : "#c8c8c8");
    };
    std::string s = "<h2>Time per token</h2>\n";
    for (const Phase &f : p.phases) {
        s += fmt::format("<h3>{}: {} a token, {:.1f} tokens per second</h3>\n<p>{}</p>\n", escape(f.name),
                         number(f.wall, "s"), f.wall > 0 ? 1 / f.wall : 0, escape(f.verdict));
        s += "<svg viewBox=\"0 0 860 40\" role=\"img\" aria-label=\"stacked bar\" style=\"max-width:860px\">\n";
        double at = 0, sum = 0;
        std::vector<Bar> bars = f.classes;
        std::sort(bars.begin(), bars.end(), [](const Bar &l, const Bar &r) { return l.seconds > r.seconds; });
        for (const Bar &b : bars) sum += b.seconds;
        const double whole = std::max(f.wall, sum);
        const auto part = [&](const std::string &name, double seconds, const std::string &paint) {
            const double width = 858 * seconds / whole;
            s += fmt::format(
                "<rect x=\"{0:.2f}\" y=\"2\" width=\"{1:.2f}\" height=\"34\" fill=\"{2}\" stroke=\"#fff\" "
                "stroke-width=\"0.7\"><title>{3}: {4}, {5:.1f}%</title></rect>\n",
                at, width, paint, escape(name), number(seconds, "s"), 100 * seconds / whole);
            if (width > 14 + 7.4 * static_cast<double>(name.size()))
                s += fmt::format("<text x=\"{:.1f}\" y=\"23\" class=\"{}\">{}</text>\n", at + 6,
                                 paint == kOutside ? "" : "inbar", escape(name));
            at += width;
        };
        for (const Bar &b : bars) part(b.name, b.seconds, fill(b.name));
        if (f.wall > sum) part("outside of launches", f.wall - sum, kOutside);
        s += "</svg>\n<table><tr><th></th><th>class</th><th>time a token</th><th>share</th></tr>\n";
        const auto row = [&](const std::string &name, double seconds, const std::string &paint) {
            s += fmt::format(
                "<tr><td><span class=\"key\" style=\"background:{}\"></span></td><td>{}</td><td class=\"n\">{}</td>"
                "<td class=\"n\">{:.1f}%</td></tr>\n",
                paint, escape(name), number(seconds, "s"), 100 * seconds / whole);
        };
        for (const Bar &b : bars) row(b.name, b.seconds, fill(b.name));
        if (f.wall > sum) row("outside of launches", f.wall - sum, kOutside);
        s += "</table>\n";
    }
    return s;
}

// Changes in percent; those beyond the axis stand at its end with an arrow.
std::string comparisons(const Page &p) {
    if (p.comparisons.empty()) return {};
    constexpr double kMost = 0.3, kNames = 260, kRight = 770, kRow = 24, kTop = 12;
    double reach = 0.02;
    for (const Comparison &c : p.comparisons)
        for (const double v : {c.low, c.high, c.predicted > 0 ? c.predicted : 1.0})
            reach = std::max(reach, std::min(std::fabs(v - 1), kMost));
    reach *= 1.05;
    const double height = kTop + kRow * static_cast<double>(p.comparisons.size()) + 52, bottom = height - 48;
    const auto x = [&](double change) {
        return kNames + (std::clamp(change, -reach, reach) + reach) / (2 * reach) * (kRight - kNames);
    };
    std::string s = fmt::format(
        "<svg viewBox=\"0 0 860 {}\" role=\"img\" aria-label=\"A/B comparisons\" "
        "style=\"max-width:860px\">\n",
        height);
    const double tick = reach > 0.15 ? 0.1 : reach > 0.06 ? 0.05 : reach > 0.03 ? 0.02 : 0.01;
    for (int i = -static_cast<int>(reach / tick); i <= static_cast<int>(reach / tick); i++)
        s += fmt::format(
            "<path class=\"{0}\" d=\"M{1:.1f} {2:.1f}V{3:.1f}\"/><text x=\"{1:.1f}\" y=\"{4:.1f}\" "
            "text-anchor=\"middle\">{5}%</text>\n",
            i == 0 ? "zero" : "grid", x(i * tick), kTop, bottom, bottom + 16,
            i == 0 ? "0" : fmt::format("{:+.0f}", 100 * i * tick));
    double y = kTop + kRow / 2;
    for (const Comparison &c : p.comparisons) {
        const char *paint = c.verdict == "helps" ? "#009e73" : c.verdict == "hurts" ? "#d55e00" : "#777777";
        const double change = c.ratio - 1;
        s += fmt::format("<text x=\"8\" y=\"{:.1f}\">{}, {}</text>\n", y + 4, escape(c.lever), escape(c.test));
        if (c.noise > 0)
            s += fmt::format(
                "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"14\" fill=\"#000\" "
                "fill-opacity=\"0.07\"/>\n",
                x(-c.noise), y - 7, x(c.noise) - x(-c.noise));
        if (std::fabs(change) > reach)
            s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n",
                             change > 0 ? kRight + 10 : kNames - 10, y + 4, change > 0 ? "start" : "end", paint,
                             change > 0 ? fmt::format("{:+.0f}% &rarr;", 100 * change)
                                        : fmt::format("&larr; {:+.0f}%", 100 * change));
        s += fmt::format(
            "<path d=\"M{0:.1f} {1:.1f}H{2:.1f}\" stroke=\"{3}\" stroke-width=\"3\"/><circle cx=\"{4:.1f}\" "
            "cy=\"{1:.1f}\" r=\"5\" fill=\"{3}\"><title>{5:+.2f}% ({6:+.2f}% to {7:+.2f}%), {8}</title></circle>\n",
            x(c.low - 1), y, x(c.high - 1), paint, x(change), 100 * change, 100 * (c.low - 1), 100 * (c.high - 1),
            escape(c.verdict));
        if (c.predicted > 0) {
            const double at = x(c.predicted - 1);
            s += fmt::format(
                "<path d=\"M{0:.1f} {2:.1f}L{1:.1f} {3:.1f}L{0:.1f} {4:.1f}L{5:.1f} {3:.1f}Z\" fill=\"none\" "
                "stroke=\"#000\" stroke-width=\"1.4\"><title>predicted {6:+.2f}%</title></path>\n",
                at, at + 6, y - 6, y, y + 6, at - 6, 100 * (c.predicted - 1));
        }
        y += kRow;
    }
    s += fmt::format(
        "<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">tokens per second with the "
        "lever, beside without</text>\n</svg>\n",
        (kNames + kRight) / 2, height - 8);
    s += "<table><tr><th>lever</th><th>test</th><th>predicted</th><th>measured</th><th>95% interval</th><th>noise "
         "(A/A)</th><th>verdict</th></tr>\n";
    for (const Comparison &c : p.comparisons)
        s += fmt::format(
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:+.2f}%</td><td "
            "class=\"n\">{:+.2f}% to {:+.2f}%</td><td class=\"n\">{:.2f}%</td><td>{}</td></tr>\n",
            escape(c.lever), escape(c.test), c.predicted > 0 ? fmt::format("{:+.2f}%", 100 * (c.predicted - 1)) : "-",
            100 * (c.ratio - 1), 100 * (c.low - 1), 100 * (c.high - 1), 100 * c.noise, escape(c.verdict));
    return "<h2>Levers: predicted and measured</h2>\n<p>Dots with 95% intervals are measured (one process, interleaved "
           "A "
           "B B A), diamonds predicted beforehand from the isolated ratio k and the share f of the wall time; the grey "
           "band is what A differs from A.</p>\n" +
           s + "</table>\n";
}

std::string sizes(const Page &p) {
    if (p.sizes.size() < 2) return {};
    double low = 1e30, high = 0, most = p.roof.read;
    for (const SizePoint &q : p.sizes)
        low = std::min(low, q.bytes), high = std::max(high, q.bytes), most = std::max(most, q.bytes_per_second);
    const Axes a({floor_power(low), ceil_power(high), true}, {0, most * 1.1, false}, 860, 300);
    std::string s = a.begin("Bandwidth by size of a launch");
    s += a.grid<std::string (*)(double)>([](double v) { return round_number(v, "B"); },
                                         [](double v) { return round_number(v, "B/s"); }, "bytes that a launch reads",
                                         "bytes per second");
    if (p.roof.read > 0)
        s += fmt::format("<path class=\"roof\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", a.left(), a.y(p.roof.read), a.right());
    std::string path;
    for (const SizePoint &q : p.sizes)
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", a.x(q.bytes), a.y(q.bytes_per_second));
    s += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, colour(0));
    for (const SizePoint &q : p.sizes)
        s += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{}: {}</title></circle>\n",
                         a.x(q.bytes), a.y(q.bytes_per_second), colour(0), number(q.bytes, "B"),
                         number(q.bytes_per_second, "B/s"));
    return "<h2>Bandwidth by size of a launch</h2>\n<p>Small launches end before memory is busy: what a barrier and "
           "the first "
           "misses cost is paid once for each.</p>\n" +
           s + "</svg>\n";
}

constexpr const char *kStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 900px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: 0.2em; } h2 { margin-top: 2em; border-bottom: 1px solid #ccc; } h3 { margin-bottom: 0; }
p { margin: 0.4em 0; } code { background: #f2f2f2; padding: 0 0.25em; }
table { border-collapse: collapse; margin: 0.8em 0; } th, td { padding: 0.15em 0.8em 0.15em 0; text-align: left; border-bottom: 1px solid #eee; }
.n { text-align: right; font-variant-numeric: tabular-nums; } .key { display: inline-block; width: 0.9em; height: 0.9em; }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: #333; }
svg .title { font-weight: 600; } svg .inbar { fill: #fff; font-weight: 600; } svg .roofname { fill: #666; }
.grid { stroke: #e4e4e4; fill: none; } .roof { stroke: #444; stroke-width: 1.6; fill: none; } .zero { stroke: #888; fill: none; }
@media print { body { margin: 0; max-width: none; } h2 { break-after: avoid; } svg, table { break-inside: avoid; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)";

}  // namespace

std::string html(const Page &p) {
    std::string s = fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
        "content=\"width=device-width\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n",
        escape(p.title), kStyle);
    s += fmt::format("<h1>{}</h1>\n<p>{}<br>{}<br>{}</p>\n<p><code>{}</code></p>\n", escape(p.title), escape(p.model),
                     escape(p.device), escape(p.date), escape(p.command));
    for (const std::string &n : p.notes) s += fmt::format("<p>{}</p>\n", escape(n));
    s += time_per_token(p) + roofline(p) + comparisons(p) + sizes(p);
    return s + "</body>\n</html>\n";
}

}  // namespace ridge::report
