#include "measure/bench_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include "core/error.h"
#include "engine/plan.h"
#include "measure/synthetic_fill.h"
#include "op/cost.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ridge::bench {
namespace {

constexpr uint32_t kFillTokens = 64;  // that a step of the set-up writes into the KV state
constexpr uint32_t kMostLaunches = 4096;

uint32_t divided_up(double a, double b) { return static_cast<uint32_t>(std::ceil(a / b)); }

// Standard normal, at the speed of a generator and an addition: the sum of four uniform bytes.
std::vector<float> normals(size_t count, uint64_t seed) {
    std::mt19937_64 bits(seed);
    std::vector<float> x(count);
    uint64_t word = 0;
    for (size_t i = 0; i < count; i++) {
        if (i % 2 == 0) word = bits();
        int sum = 0;
        for (int j = 0; j < 4; j++, word >>= 8) sum += static_cast<int>(word & 255);
        x[i] = (static_cast<float>(sum) - 510) / 147.8f;
    }
    return x;
}

// Which experts the tokens of each launch use, all different within a token. With fewer choices than experts the
// launches go round all experts, so that weights are not read again before all others were; with more, they are drawn.
class Router {
  public:
    Router(uint32_t experts, uint32_t slots) : slots_(slots), order_(experts) {
        std::iota(order_.begin(), order_.end(), 0);
        std::shuffle(order_.begin(), order_.end(), random_);
    }
    std::vector<int32_t> choose(uint32_t tokens) {
        std::vector<int32_t> ids;
        for (uint32_t t = 0; t < tokens; t++) {
            const bool in_turn = size_t{tokens} * slots_ <= order_.size();
            for (uint32_t s = 0; s < slots_; s++) {
                // Drawn: a partial shuffle, whose first elements are a sample without repetition.
                if (!in_turn) std::swap(order_[s], order_[s + random_() % (order_.size() - s)]);
                ids.push_back(order_[in_turn ? next_++ % order_.size() : s]);
            }
        }
        return ids;
    }

  private:
    uint32_t slots_;
    std::vector<int32_t> order_;
    std::mt19937_64 random_{5};
    size_t next_ = 0;
};

void check_shape(const KernelOptions &o, Format format) {
    const FormatInfo &f = info(format);
    if (o.n == 0 || o.k == 0 || o.k % f.block != 0)
        fail(ErrorKind::usage, "a matrix of {} rows of {} cannot be {}: a row is made of blocks of {}", o.n, o.k,
             f.name, f.block);
    if (o.slots > o.experts || (o.experts > 0 && o.slots == 0))
        fail(ErrorKind::usage, "a token cannot use {} of {} experts; --experts and --slots go together", o.slots,
             o.experts);
}

}  // namespace

// Pages that are there, huge or small.
class Problem::HostMemory {
  public:
    HostMemory(size_t bytes, bool small_pages) : bytes_((bytes + kHuge - 1) / kHuge * kHuge) {
#if defined(__linux__)
        data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data_ == MAP_FAILED) data_ = nullptr;
        if (data_ != nullptr) madvise(data_, bytes_, small_pages ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
#else
        static_cast<void>(small_pages);
        data_ = std::aligned_alloc(4096, bytes_);
#endif
        if (data_ == nullptr)
            fail(ErrorKind::limit, "no memory for {:.0f} MB of weights; a smaller --n would do",
                 static_cast<double>(bytes) / 1e6);
    }
    ~HostMemory() {
#if defined(__linux__)
        munmap(data_, bytes_);
#else
        std::free(data_);
#endif
    }
    HostMemory(const HostMemory &) = delete;
    HostMemory &operator=(const HostMemory &) = delete;
    std::byte *data() const { return static_cast<std::byte *>(data_); }

  private:
    static constexpr size_t kHuge = size_t{2} << 20;
    size_t bytes_;
    void *data_ = nullptr;
};

Problem::Problem(Backend &device, const KernelOptions &options, Format format, DType input, uint32_t m, uint32_t depth)
    : device_(device), m_(m), step_(StepLimits{}) {
    const bool attends = options.op == "attention";
    limits_ = {.tokens = attends ? std::max(m, kFillTokens) : m, .outputs = 1, .sequences = 1, .pages = 1};
    const uint32_t first = attends ? depth : 0;
    limits_.pages = (first + limits_.tokens + kPageTokens - 1) / kPageTokens;
    step_ = step_at(first, m);
    program_.levers = options.levers;
    if (attends)
        add_attention(options, depth);
    else
        add_products(options, format, input);
}

Problem::~Problem() = default;

ValueId Problem::add_value(Value v) {
    const size_t bytes = rows_of(v, limits_.tokens, limits_.outputs) * row_bytes(v.type, v.cols);
    values_.push_back(device_.allocate(bytes, v.name));
    return program_.add_value(std::move(v));
}

void Problem::set(ValueId v, const void *data, size_t bytes) {
    device_.upload(values_[static_cast<size_t>(v)], 0, {static_cast<const std::byte *>(data), bytes});
}

// Tokens of the one sequence there is, whose pages lie in order.
StepBuffer Problem::step_at(uint32_t position, uint32_t count) const {
    StepBuffer step(limits_);
    step.begin();
    for (uint32_t i = 0; i < limits_.pages; i++) step.set_page(0, i, i);
    for (uint32_t i = 0; i < count; i++) step.add(0, position + i, 0, false);
    return step;
}

// Matrices of one layer after the other: enough of them that a round through all is more than the caches hold. Their
// bytes are the same: random once and copied, which is faster.
void Problem::add_weights(const KernelOptions &o, Format format, uint32_t matrices) {
    const uint32_t experts = std::max(o.experts, 1u);
    const Weight shape{"w", format, o.n, o.k, experts, nullptr};
    const size_t bytes = shape.bytes(), layer = bytes * matrices;
    copies_ =
        std::clamp(divided_up(static_cast<double>(o.rotate_bytes), static_cast<double>(layer)), 1u, kMostLaunches);
    // Tensors in a file begin at multiples of 32; nothing more is promised.
    const size_t stride = (bytes + 31) / 32 * 32;
    weights_ = std::make_unique<HostMemory>(stride * matrices * copies_, o.small_pages);
    Filler(format, 0, 1 / std::sqrt(static_cast<double>(o.k)), stream_key(1, "bench"))(0, {weights_->data(), bytes});
    for (uint32_t i = 0; i < matrices * copies_; i++) {
        Weight w = shape;
        w.name = fmt::format("{}.w{}", i / matrices, i % matrices);
        w.data = weights_->data() + i * stride;
        if (i > 0) std::memcpy(weights_->data() + i * stride, weights_->data(), bytes);
        program_.add_weight(std::move(w));
    }
}

void Problem::add_products(const KernelOptions &o, Format format, DType input) {
    check_shape(o, format);
    const uint32_t matrices = o.op == "gate_up" ? 2 : 1;
    add_weights(o, format, matrices);

    ValueId x = add_value({"x", DType::f32, Rows::tokens, 1, o.k});
    const std::vector<float> numbers = normals(size_t{m_} * o.k, 3);
    set(x, numbers.data(), numbers.size() * sizeof(float));
    if (input != DType::f32) {
        const ValueId codes = add_value({"x codes", input, Rows::tokens, 1, o.k});
        program_.nodes.push_back({Quantize{x, codes}, 0, 0});
        x = codes;
    }
    const auto setup = static_cast<uint32_t>(program_.nodes.size());

    // Two outputs in turn, as a plan reuses memory.
    ValueId out[2];
    const uint32_t slots = std::max(o.slots, 1u);
    for (ValueId &v : out) v = add_value({"out", DType::f32, Rows::tokens, slots, o.n});

    Router router(std::max(o.experts, 1u), slots);
    const uint32_t per_launch = std::min(m_ * slots, std::max(o.experts, 1u));  // experts at most
    const uint32_t rounds = std::max(o.experts, 1u) / per_launch;               // launches that a copy serves
    const uint32_t launches = std::min(copies_ * std::max(rounds, 1u), kMostLaunches);
    for (uint32_t i = 0; i < launches; i++) {
        ValueId ids = kNone;
        StepCount count{.tokens = m_};
        if (o.experts > 0) {
            ids = add_value({"ids", DType::i32, Rows::tokens, 1, slots});
            std::vector<int32_t> chosen = router.choose(m_);
            set(ids, chosen.data(), chosen.size() * sizeof(int32_t));
            std::sort(chosen.begin(), chosen.end());
            const auto used = std::unique(chosen.begin(), chosen.end()) - chosen.begin();
            count.expert_share = static_cast<double>(used) / o.experts;
        }
        const auto w = static_cast<WeightId>(i / std::max(rounds, 1u) % copies_ * matrices);
        Op op;
        if (o.op == "gate_up") {
            op = GateUp{x, ids, out[i % 2], w, w + 1, GluKind::silu};
        } else {
            Contract c{x, ids, 1, {}};
            c.banks[0] = {w, kNone, out[i % 2]};
            op = c;
        }
        const Cost c = cost(program_, op, count);
        bytes_ += c.weight_bytes;
        nodes_.push_back(static_cast<uint32_t>(program_.nodes.size()));
        program_.nodes.push_back({std::move(op), 0, 0});
    }
    bytes_ /= launches;
    multiply_adds_ = static_cast<double>(m_) * slots * o.n * o.k * matrices;
    for (uint32_t i = 0; i < setup; i++) run_once(i, step_);
}

void Problem::add_attention(const KernelOptions &o, uint32_t depth) {
    if (o.kv_heads == 0 || o.heads % o.kv_heads != 0)
        fail(ErrorKind::usage, "{} heads cannot share {} KV heads", o.heads, o.kv_heads);
    const uint32_t cols = o.kv_heads * o.head_dim;
    const double row = 2 * static_cast<double>(row_bytes(o.kv, cols));
    copies_ = std::clamp(divided_up(static_cast<double>(o.rotate_bytes), row * (depth + m_)), 1u, 256u);
    const ValueId q = add_value({"q", DType::f32, Rows::tokens, 1, o.heads * o.head_dim});
    const ValueId out = add_value({"out", DType::f32, Rows::tokens, 1, o.heads * o.head_dim});
    const ValueId k = add_value({"k", DType::f32, Rows::tokens, 1, cols});
    const ValueId v = add_value({"v", DType::f32, Rows::tokens, 1, cols});
    for (const ValueId i : {q, k, v}) {
        const std::vector<float> x = normals(size_t{limits_.tokens} * program_.value(i).cols, 7 + i);
        set(i, x.data(), x.size() * sizeof(float));
    }
    for (uint32_t i = 0; i < 2 * copies_; i++) {
        const State s{i % 2 == 0 ? "k" : "v", State::Per::token, cols, o.kv, 0};
        states_.push_back(device_.allocate(size_t{limits_.pages} * kPageTokens * row_bytes(o.kv, cols), "state"));
        program_.add_state(s);
    }
    for (uint32_t i = 0; i < copies_; i++) {
        const auto s = static_cast<StateId>(2 * i);
        program_.nodes.push_back({KvWrite{k, v, s, s + 1}, 0, 0});
    }
    StepCount count{.tokens = m_};
    count.kv_rows = depth + m_;
    for (uint32_t i = 0; i < m_; i++) count.kv_positions += depth + i + 1;
    for (uint32_t i = 0; i < copies_; i++) {
        Attention op;
        op.q = q, op.out = out;
        op.k_state = static_cast<StateId>(2 * i), op.v_state = op.k_state + 1;
        op.heads = o.heads, op.kv_heads = o.kv_heads, op.head_dim = o.head_dim;
        op.scale = 1 / std::sqrt(static_cast<float>(o.head_dim));
        nodes_.push_back(static_cast<uint32_t>(program_.nodes.size()));
        program_.nodes.push_back({op, 0, 0});
    }
    bytes_ = count.kv_rows * row;
    multiply_adds_ = 2.0 * o.heads * o.head_dim * count.kv_positions;
    for (uint32_t at = 0; at < depth + m_; at += kFillTokens) {
        const uint32_t room = limits_.pages * kPageTokens - at;
        const StepBuffer step = step_at(at, std::min(kFillTokens, room));
        for (uint32_t i = 0; i < copies_; i++) run_once(i, step);
    }
}

const Bindings &Problem::bindings_for(Layout layout) {
    std::unique_ptr<Bindings> &found = bindings_[layout];
    if (found) return *found;
    found = std::make_unique<Bindings>();
    found->limits = limits_;
    for (const Buffer &b : values_) found->values.push_back(b.address);
    for (const Buffer &b : states_) found->states.push_back(b.address);
    for (const Weight &w : program_.weights) {
        loaded_.push_back(device_.load(w, layout));
        found->weights.push_back(loaded_.back().address);
    }
    return *found;
}

void Problem::run_once(uint32_t node, const StepBuffer &step) {
    const std::vector<const Kernel *> rows =
        legal_rows(program_, program_.nodes[node].op, device_, step.view().tokens());
    if (rows.empty())
        fail(ErrorKind::unsupported, "device {} has no row for {}, which prepares this measurement",
             device_.info().name, op_name(static_cast<OpKind>(program_.nodes[node].op.index())));
    device_.compile(program_, bindings_for(rows[0]->layout), {{rows[0], node}})->run(step);
}

std::vector<const Kernel *> Problem::rows() {
    const LeverSet levers = program_.levers;
    program_.levers = LeverSet::all();
    std::vector<const Kernel *> rows = legal_rows(program_, program_.nodes[nodes_[0]].op, device_, m_);
    program_.levers = levers;
    return rows;
}

const Kernel *Problem::planned() const {
    const std::vector<const Kernel *> rows = legal_rows(program_, program_.nodes[nodes_[0]].op, device_, m_);
    return rows.empty() ? nullptr : rows[0];
}

std::unique_ptr<Executable> Problem::compile(const Kernel &row, uint32_t first, uint32_t count) {
    std::vector<Launch> list;
    for (uint32_t i = 0; i < count; i++) list.push_back({&row, nodes_[(first + i) % nodes_.size()]});
    return device_.compile(program_, bindings_for(row.layout), std::move(list));
}

}  // namespace ridge::bench
