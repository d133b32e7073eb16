#include "measure/gate_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"

namespace ridge::gate {
namespace {

constexpr std::byte kPoison{0xff};  // NaN in f32, -1 in i32

bool same_bits(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// The formats of a node's matrices, as plan.cpp counts them.
struct MatrixFormats {
    const Program &p;
    FormatSet set;
    explicit MatrixFormats(const Program &program) : p(program) {
        const Op &op = p.nodes[0].op;
        if (const Embed *e = std::get_if<Embed>(&op)) add(e->table);
        if (const Contract *c = std::get_if<Contract>(&op))
            for (uint32_t b = 0; b < c->n_banks; b++) add(c->banks[b].weight);
        if (const GateUp *g = std::get_if<GateUp>(&op)) add(g->gate), add(g->up);
    }
    void add(WeightId w) { set = set | FormatSet{p.weight(w).format}; }
};

StepLimits limits_of(const Problem &p) {
    StepLimits l;
    l.tokens = static_cast<uint32_t>(p.tokens.size());
    l.outputs = 0;
    uint32_t last_page = 0;
    for (const Token &t : p.tokens) {
        l.outputs += t.wanted;
        l.sequences = std::max(l.sequences, t.sequence + 1);
        last_page = std::max(last_page, t.position / kPageTokens);
    }
    l.outputs = std::max(l.outputs, 1u);
    l.pages = last_page + 1;
    l.sequences = std::max(l.sequences, static_cast<uint32_t>(p.pages.size()));
    for (const auto &pages : p.pages) l.pages = std::max(l.pages, static_cast<uint32_t>(pages.size()));
    return l;
}

StepBuffer step_of(const Problem &p, uint32_t m) {
    StepBuffer step(limits_of(p));
    step.begin();
    for (uint32_t s = 0; s < p.pages.size(); s++)
        for (uint32_t i = 0; i < p.pages[s].size(); i++) step.set_page(s, i, p.pages[s][i]);
    for (uint32_t i = 0; i < m; i++) {
        const Token &t = p.tokens[i];
        step.add(t.id, t.position, t.sequence, t.wanted);
        if (t.wanted) step.set_draw(step.view().outputs() - 1, t.draw);
    }
    return step;
}

}  // namespace

void Problem::plain_tokens(uint32_t m) {
    tokens.clear();
    for (uint32_t i = 0; i < m; i++) tokens.push_back({0, i, 0, true});
}

void Problem::set_weight(WeightId w, Bytes bytes) {
    RIDGE_ASSERT(bytes.size() == program.weight(w).bytes());
    weights.push_back(std::move(bytes));
    program.weights[static_cast<size_t>(w)].data = weights.back().data();
}

void Problem::expect(ValueId v, Reals want, std::function<double(Order, size_t)> bound, Reals want_bf16) {
    RIDGE_ASSERT(want.size() == size_t{rows(v)} * width(program.value(v).type, program.value(v).cols));
    RIDGE_ASSERT(want_bf16.empty() || want_bf16.size() == want.size());
    expected.push_back({v, std::move(want), std::move(bound), std::move(want_bf16)});
}

uint32_t Problem::rows(ValueId v) const {
    uint32_t wanted = 0;
    for (const Token &t : tokens) wanted += t.wanted;
    return static_cast<uint32_t>(rows_of(program.value(v), static_cast<uint32_t>(tokens.size()), wanted));
}

// What rows of one Order gave on a problem so far: per output (values first, then states) the numbers of each row.
struct Trial::Reference {
    struct Origin {
        const Kernel *kernel = nullptr;  // nullptr: not known yet
        uint32_t m = 0;
    };
    struct Output {
        Reals numbers;
        std::vector<Origin> origin;  // per row
    };
    std::map<size_t, Output> outputs;
};

// One row on one problem with m tokens.
struct Trial::Attempt {
    const Problem &p;
    Engine &engine;
    const Kernel &kernel;
    GateRow &row;
    Reference &reference;
    const std::map<StateId, std::vector<std::byte>> &states;  // before the launch
    uint32_t m;
    // Set where the operation publishes the q8 form of `expected[published]`: where that is, and whether anyone reads
    // what it is made of.
    ValueId q8 = kNone;
    size_t published = 0;
    bool out_read = true;
    uint32_t outputs = 0;
    size_t bad_here = 0;

    template <class... A>
    void bad(fmt::format_string<A...> what, A &&...args) {
        row.result.nbad++;
        // The first of each case, so that one broken shape does not hide another.
        if (bad_here++ == 0 && std::count(row.result.first_bad.begin(), row.result.first_bad.end(), '\n') < 3)
            row.result.first_bad +=
                fmt::format("{} with {} tokens: {}\n", p.name, m, fmt::format(what, std::forward<A>(args)...));
    }

    const Value &value(ValueId v) const { return p.program.value(v); }
    size_t rows(ValueId v) const { return rows_of(value(v), m, outputs); }

    void poison(ValueId v) {
        engine.write_value(v, std::vector<std::byte>(p.rows(v) * row_bytes(value(v).type, value(v).cols), kPoison));
    }
    void prepare() {
        for (const Operand &o : p.inputs)
            engine.write_value(o.id, pack(value(o.id).type, value(o.id).cols, rows(o.id), o.numbers));
        for (const auto &[id, bytes] : states) engine.write_state(id, bytes);
        for (const Expected &e : p.expected) poison(e.id);
        if (q8 != kNone) poison(q8);
    }

    void check_number(double got, double want, double bound, std::string_view name, size_t r, size_t c) {
        row.result.checked++;
        const double off = std::fabs(got - want);
        // Below that, one rounding to a subnormal is the whole bound.
        if (bound > 0 && off <= bound && std::fabs(want) > 0x1p-100) row.worst = std::max(row.worst, off / bound);
        if (bound == 0 ? same_bits(got, want) : off <= bound) return;
        const std::string allowed = bound == 0 ? "exactly" : fmt::format("within {:.3g} (off by {:.3g})", bound, off);
        bad("{}[{}, {}] is {:.9g}, should be {:.9g} {}", name, r, c, got, want, allowed);
    }

    // Against the rows of the same order, in this step and in others.
    void check_order(size_t output, size_t n_rows, size_t w, RealSpan got, size_t r, std::string_view name) {
        Reference::Output &seen = reference.outputs[output];
        seen.origin.resize(n_rows), seen.numbers.resize(n_rows * w);
        Reference::Origin &origin = seen.origin[r];
        double *known = &seen.numbers[r * w];
        if (!origin.kernel) {
            std::copy_n(&got[r * w], w, known);
            origin = {&kernel, m};
            return;
        }
        for (size_t c = 0; c < w; c++)
            if (!same_bits(known[c], got[r * w + c]))
                return bad("{}[{}, {}] is {:.9g}, but {}, of the same order, gave {:.9g} with {} tokens", name, r, c,
                           got[r * w + c], origin.kernel->name, known[c], origin.m);
    }

    void check_value(const Expected &e, size_t output) {
        const Value &v = value(e.id);
        const size_t w = width(v.type, v.cols), n = rows(e.id);
        const auto bytes = engine.read_value(e.id, p.rows(e.id));
        const size_t used = n * row_bytes(v.type, v.cols);
        const Reals got = unpack(v.type, v.cols, n, std::span(bytes).first(used));
        for (size_t i = 0; i < n * w; i++)
            check_number(got[i], e.wanted(kernel.order, i), e.bound ? e.bound(kernel.order, i) : 0, v.name, i / w,
                         i % w);
        for (size_t r = 0; r < n; r++) check_order(output, p.rows(e.id), w, got, r, v.name);
        if (std::any_of(bytes.begin() + static_cast<std::ptrdiff_t>(used), bytes.end(),
                        [](std::byte b) { return b != kPoison; }))
            bad("{} is written beyond its {} rows", v.name, n);
    }

    void check_state(const ExpectedState &e, size_t output) {
        const State &s = p.program.state(e.id);
        const size_t stride = row_bytes(s.type, s.cols), w = width(s.type, s.cols), tokens = p.tokens.size();
        const auto bytes = engine.read_state(e.id);
        const std::vector<std::byte> &before = states.at(e.id);
        Reals got(tokens * w);
        for (size_t r = 0; r < e.writer.size(); r++) {
            const auto row_of_state = std::span(bytes).subspan(r * stride, stride);
            if (e.writer[r] >= 0 && static_cast<uint32_t>(e.writer[r]) < m) {
                const Reals numbers = unpack(s.type, s.cols, 1, row_of_state);
                std::copy(numbers.begin(), numbers.end(), &got[static_cast<size_t>(e.writer[r]) * w]);
            } else if (!std::equal(row_of_state.begin(), row_of_state.end(), &before[r * stride])) {
                bad("slot {} of {} is changed, which no token writes", r, s.name);
            }
        }
        for (size_t i = 0; i < m * w && !e.want.empty(); i++)
            check_number(got[i], e.want[i], e.bound ? e.bound(kernel.order, i) : 0, s.name, i / w, i % w);
        for (size_t r = 0; r < m && !e.want.empty(); r++) check_order(output, tokens, w, got, r, s.name);
    }

    void check_inputs() {
        for (const Operand &o : p.inputs) {
            const Value &v = value(o.id);
            if (engine.read_value(o.id, rows(o.id)) != pack(v.type, v.cols, rows(o.id), o.numbers))
                bad("{}, which it reads, is changed", v.name);
        }
    }

    void run() {
        for (uint32_t i = 0; i < m; i++) outputs += p.tokens[i].wanted;
        prepare();
        engine.run_node(0, kernel, step_of(p, m));
        size_t output = 0;
        for (const Expected &e : p.expected) {
            if (out_read || output != published) check_value(e, output);
            output++;
        }
        for (const ExpectedState &e : p.expected_states) check_state(e, output++);
        if (q8 != kNone) check_published(output);
        check_inputs();
    }

    // The q8 form is what quantize makes of what rows of this order computed without one.
    void check_published(size_t output) {
        const ValueId out = p.expected[published].id;
        const size_t used = rows(out) * value(out).cols;
        const RealSpan computed = std::span(reference.outputs.at(published).numbers).first(used);
        check_value({q8, quantize(rows(out), value(out).cols, computed), {}, {}}, output);
    }
};

namespace {

// Where a problem's operation publishes, and which of the expected values.
struct Published {
    ValueId q8 = kNone;
    size_t expected = 0;
};

// Makes the operation of `p` publish, if it can.
Published publish(Problem &p, bool out_read) {
    Published to;
    std::visit(
        [&](auto &o) {
            if constexpr (requires { o.q8; }) {
                Value v = p.program.value(o.out);
                if (v.cols % 32 != 0) return;
                v.name = "q8", v.type = DType::q8;
                if (o.q8 == kNone) o.q8 = p.program.add_value(v);
                o.out_read = out_read;
                to.q8 = o.q8;
                while (p.expected[to.expected].id != o.out) to.expected++;
            }
        },
        p.program.nodes[0].op);
    return to;
}

}  // namespace

Trial::Trial(Backend &backend, const GateOptions &options) : backend_(backend), options_(options) {
    for (const Kernel &k : backend.kernels()) {
        if (!wants(k.op) || k.name.find(options.row) == std::string_view::npos) continue;
        if (options.format && !k.formats.has(*options.format)) continue;
        GateRow row;
        row.name = k.name;
        if (const Features lacking = k.needs & ~backend.features(); lacking != 0)
            row.not_run = "needs " + backend.feature_names(lacking);
        rows_.emplace(&k, std::move(row));
    }
}

bool Trial::wants(OpKind op) const { return options_.op.empty() || options_.op == op_name(op); }

void Trial::run(Problem &p) {
    p.program.levers = LeverSet::all()
                           .without(Lever::moe_by_slot)
                           .without(Lever::m_tile_32);  // which leaves rows fewer ways; see gate_model
    struct Todo {
        const Kernel *kernel;
        uint32_t m;
    };
    std::vector<Todo> todo;
    for (const uint32_t m : p.steps)
        for (const Kernel *k : legal_rows(p.program, p.op(), backend_, m))
            if (rows_.contains(k)) todo.push_back({k, m});
    if (todo.empty()) return;
    p.fill(p);
    for (const Operand &o : p.inputs) p.program.inputs.push_back(o.id);

    WeightStore store;
    EngineOptions options;
    options.limits = limits_of(p);
    options.pages = p.pool;
    std::unique_ptr<Engine> engine;
    try {
        engine = std::make_unique<Engine>(p.program, std::vector<Backend *>{&backend_}, store, options);
    } catch (const Error &e) {  // no row takes a single token, or memory is short
        for (const Todo &t : todo) {
            GateRow &row = rows_.at(t.kernel);
            row.result.nbad++;
            if (row.result.first_bad.empty()) row.result.first_bad = fmt::format("{}: {}\n", p.name, e.what());
        }
        return;
    }
    std::map<Order, Reference> references;
    std::map<StateId, std::vector<std::byte>> states;
    for (const Operand &o : p.states) {
        const State &s = p.program.state(o.id);
        states[o.id] = pack(s.type, s.cols, o.numbers.size() / width(s.type, s.cols), o.numbers);
    }
    const auto attempt = [&p](Attempt a) {
        a.row.cases++;
        try {
            a.run();
        } catch (const Error &e) {
            // A device that failed does nothing more; all that is left to say is what it was doing.
            if (e.kind() == ErrorKind::device)
                fail(e.kind(), "{}, on {} with {} tokens: {}", a.row.name, p.name, a.m, e.what());
            a.bad("{}", e.what());
        }
    };
    const FormatSet formats = MatrixFormats(p.program).set;
    for (const Todo &t : todo) {
        GateRow &row = rows_.at(t.kernel);
        row.formats = row.formats | formats;
        attempt({p, *engine, *t.kernel, row, references[t.kernel->order], states, t.m});
    }
    // Rows that publish, on the smallest and the largest step.
    for (const bool out_read : {true, false}) {
        const Published published = publish(p, out_read);
        if (published.q8 == kNone) return;
        engine = nullptr;
        for (const uint32_t m : {p.steps.front(), p.steps.back()})
            for (const Kernel *k : legal_rows(p.program, p.op(), backend_, m)) {
                const bool known = std::any_of(todo.begin(), todo.end(), [&](const Todo &t) {
                    return t.kernel->order == k->order && t.m == p.steps.back();
                });
                if (!rows_.contains(k) || !known) continue;
                if (!engine)
                    engine = std::make_unique<Engine>(p.program, std::vector<Backend *>{&backend_}, store, options);
                attempt({p, *engine, *k, rows_.at(k), references[k->order], states, m, published.q8, published.expected,
                         out_read});
            }
    }
}

GateReport Trial::report() {
    GateReport report;
    for (const Kernel &k : backend_.kernels()) {
        const auto found = rows_.find(&k);
        if (found == rows_.end()) continue;
        GateRow row = found->second;
        if (row.not_run.empty())
            for (const FormatInfo &f : all_formats()) {
                if (!k.formats.has(f.id) || !wants(f.id)) continue;
                if (row.formats.has(f.id)) continue;
                row.result.nbad++;
                row.result.first_bad += fmt::format("it claims {}, but no problem with it was taken\n", f.name);
            }
        for (const FormatInfo &f : all_formats()) row.n_formats += row.formats.has(f.id);
        report.rows.push_back(std::move(row));
    }
    return report;
}

}  // namespace ridge::gate
