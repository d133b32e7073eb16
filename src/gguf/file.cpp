// File: one GGUF file or a split set, mapped; look-up of keys and tensors.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "gguf/gguf.h"
#include "gguf/layout.h"
#include "gguf/mapping.h"
#include "gguf/names.h"
#include "gguf/parse.h"
#include "gguf/printable.h"

namespace ridge::gguf {

namespace fs = std::filesystem;

struct File::Impl {
    std::vector<Mapping> maps;          // by part
    std::vector<uint64_t> data_starts;  // by part
    std::vector<fs::path> paths;        // by part
    Part first;                         // its tensors moved to `tensors`
    std::vector<Tensor> tensors;        // of all parts
    NameIndex by_key, by_tensor;

    auto key_at() const {
        return [this](size_t i) { return first.metadata[i].first; };
    }
    auto tensor_at() const {
        return [this](size_t i) { return tensors[i].name; };
    }
    // The value of `key` if it is there, else nullptr.
    const Value *find(std::string_view key) const {
        const auto i = by_key.find(key, key_at());
        return i ? &first.metadata[*i].second : nullptr;
    }
    void add_part(Mapping map, Part part);
};

namespace {

constexpr std::string_view kCountKey = "split.count";            // parts in the set; 0 or 1: not split
constexpr std::string_view kNumberKey = "split.no";              // of this part, from 0
constexpr std::string_view kTensorsKey = "split.tensors.count";  // in the whole set

// NAME-00002-of-00003.gguf: part 2 of 3.
struct SplitName {
    std::string prefix;  // up to "-00002-of-"
    uint64_t number = 0, count = 0;

    static std::optional<SplitName> of(const fs::path &path) {
        constexpr std::string_view kPattern = "-#####-of-#####.gguf";
        const std::string name = path.filename().string();
        if (name.size() < kPattern.size()) return std::nullopt;
        const std::string tail = name.substr(name.size() - kPattern.size());
        auto matches = [](char pattern, char c) { return pattern == '#' ? c >= '0' && c <= '9' : c == pattern; };
        if (!std::equal(kPattern.begin(), kPattern.end(), tail.begin(), matches)) return std::nullopt;
        SplitName s;
        s.prefix = name.substr(0, name.size() - kPattern.size());
        s.number = std::stoul(tail.substr(1, 5));
        s.count = std::stoul(tail.substr(10, 5));
        return s;
    }
    std::string part(uint64_t i) const { return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i, count); }
};

// A key that counts or numbers parts, with what messages about it begin with.
struct Count {
    std::optional<uint64_t> value;  // empty where the key is absent
    std::string where;              // file, byte and key
};

Count count_in(const Part &part, const Mapping &map, std::string_view wanted) {
    for (const auto &[key, v] : part.metadata) {
        if (key != wanted) continue;
        std::string where = fmt::format("{}: byte {}: metadata '{}'", map.name(), v.data - map.bytes().data(), key);
        if (const auto n = v.as_u64()) return {n, where};
        fail(ErrorKind::file, "{}: value: {} ({}) is no count; it is an integer of 0 or more", where, preview(v),
             type_text(v));
    }
    return {std::nullopt, fmt::format("{}: metadata '{}'", map.name(), wanted)};
}

Count need_count(const Part &part, const Mapping &map, std::string_view key) {
    Count c = count_in(part, map, key);
    if (!c.value) fail(ErrorKind::file, "{}: is missing; every part of a split set has it", c.where);
    return c;
}

Mapping open_part(const fs::path &path, const SplitName &set, uint64_t number) {
    std::error_code ignored;
    if (fs::status(path, ignored).type() == fs::file_type::not_found)
        fail(ErrorKind::file, "{}: is missing: part {} of the {} parts of '{}'; put all parts into one folder",
             printable(path.native(), std::string::npos), number, set.count, printable(set.prefix));
    return Mapping::open(path);
}

// Number of parts that the first file declares, checked against its name. 1: it stands alone.
uint64_t parts_of(const Part &part, const Mapping &map, const std::optional<SplitName> &name) {
    const Count c = count_in(part, map, kCountKey);
    const uint64_t count = c.value.value_or(0);
    const uint64_t named = name ? name->count : 1;
    if (count <= 1 && named <= 1) return 1;
    if (count <= 1)
        fail(
            ErrorKind::file,
            "{}: the file is named as one of {} parts, but says that it is not split; rename it if it is a whole model",
            c.where, named);
    if (!name)
        fail(ErrorKind::file,
             "{}: the file is one of {} parts, but its name does not end in -00001-of-{:05}.gguf: the other parts "
             "cannot "
             "be found; give all parts such names",
             c.where, count, count);
    if (count != named) fail(ErrorKind::file, "{}: says {} parts, the file's name says {}", c.where, count, named);
    return count;
}

// `number` counts from 0, as split.no does.
void check_number(const Part &part, const Mapping &map, uint64_t number, uint64_t count) {
    if (const Count c = need_count(part, map, kCountKey); *c.value != count)
        fail(ErrorKind::file, "{}: says {} parts, the first part says {}", c.where, *c.value, count);
    if (const Count c = need_count(part, map, kNumberKey); *c.value != number)
        fail(ErrorKind::file,
             "{}: says {} (counted from 0), its name says {}; the file is not the part that its name says", c.where,
             *c.value, number);
}

}  // namespace

void File::Impl::add_part(Mapping map, Part part) {
    const auto file = static_cast<uint32_t>(maps.size());
    for (Tensor &t : part.tensors) {
        t.file = file;
        tensors.push_back(t);
    }
    data_starts.push_back(part.data_start);
    paths.push_back(map.path());
    maps.push_back(std::move(map));
    if (file != 0) return;
    first = std::move(part);
    first.tensors = {};
    by_key = NameIndex(first.metadata.size(), key_at());
}

File File::open(const fs::path &path) {
    const std::optional<SplitName> name = SplitName::of(path);
    if (name && (name->count == 0 || name->number < 1 || name->number > name->count))
        fail(ErrorKind::file, "{}: the name says part {} of {}; parts are counted from 1",
             printable(path.native(), 4096), name->number, name->count);
    auto impl = std::make_unique<Impl>();
    auto path_of = [&](uint64_t number) { return path.parent_path() / name->part(number); };

    Mapping map = name && name->number > 1 ? open_part(path_of(1), *name, 1) : Mapping::open(path);
    Part part = parse(map.bytes(), map.name());
    const uint64_t count = parts_of(part, map, name);
    Count tensors;
    if (count > 1) {
        check_number(part, map, 0, count);
        tensors = need_count(part, map, kTensorsKey);
    }
    impl->add_part(std::move(map), std::move(part));
    for (uint64_t i = 1; i < count; i++) {
        Mapping next = open_part(path_of(i + 1), *name, i + 1);
        Part next_part = parse(next.bytes(), next.name());
        check_number(next_part, next, i, count);
        if (const Count c = count_in(next_part, next, kTensorsKey); c.value && *c.value != *tensors.value)
            fail(ErrorKind::file, "{}: says {} tensors, the first part says {}; the file is a part of another set",
                 c.where, *c.value, *tensors.value);
        impl->add_part(std::move(next), std::move(next_part));
    }
    impl->by_tensor = NameIndex(impl->tensors.size(), impl->tensor_at());
    if (const auto d = impl->by_tensor.duplicate(impl->tensor_at())) {
        const Tensor &a = impl->tensors[d->first], &b = impl->tensors[d->second];
        const Mapping &in = impl->maps[b.file];
        fail(ErrorKind::file,
             "{}: byte {}: tensor '{}': name: is a duplicate of the tensor in {}; every name stands once "
             "in a split set",
             in.name(), reinterpret_cast<const std::byte *>(b.name.data()) - in.bytes().data() - 8, printable(b.name),
             impl->maps[a.file].name());
    }
    if (count > 1 && impl->tensors.size() != *tensors.value)
        fail(ErrorKind::file, "{}: says {} tensors, the {} parts hold {}", tensors.where, *tensors.value, count,
             impl->tensors.size());
    return File(std::move(impl));
}

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::File(File &&) noexcept = default;
File &File::operator=(File &&) noexcept = default;
File::~File() = default;

uint32_t File::version() const { return impl_->first.version; }
uint64_t File::alignment() const { return impl_->first.alignment; }
const std::vector<fs::path> &File::paths() const { return impl_->paths; }
std::span<const std::pair<std::string_view, Value>> File::metadata() const { return impl_->first.metadata; }
std::span<const Tensor> File::tensors() const { return impl_->tensors; }
const Value *File::find(std::string_view key) const { return impl_->find(key); }

uint64_t File::file_bytes() const {
    uint64_t n = 0;
    for (const Mapping &m : impl_->maps) n += m.bytes().size();
    return n;
}

const Tensor *File::find_tensor(std::string_view name) const {
    const auto i = impl_->by_tensor.find(name, impl_->tensor_at());
    return i ? &impl_->tensors[*i] : nullptr;
}

namespace {

[[noreturn]] void fail_absent(const Mapping &map, std::string_view key, std::string_view wanted) {
    fail(ErrorKind::file, "{}: metadata: key '{}' is missing; it should be {}", map.name(), printable(key), wanted);
}

// The value as T by `as`, one of Value's as_*; `wanted` describes T in the message.
template <class T>
T convert(const Mapping &map, std::string_view key, const Value &v, std::optional<T> (Value::*as)() const,
          std::string_view wanted) {
    if (const auto out = (v.*as)()) return *out;
    fail(ErrorKind::file, "{}: byte {}: metadata '{}': value: is {} ({}); it should be {}", map.name(),
         v.data - map.bytes().data(), printable(key), preview(v), type_text(v), wanted);
}

constexpr std::string_view kWantU64 = "an integer of 0 or more";
constexpr std::string_view kWantF64 = "a number";
constexpr std::string_view kWantBool = "a bool";
constexpr std::string_view kWantString = "a string";

}  // namespace

uint64_t File::get_u64(std::string_view key) const {
    const Value *v = find(key);
    if (v == nullptr) fail_absent(impl_->maps[0], key, kWantU64);
    return convert(impl_->maps[0], key, *v, &Value::as_u64, kWantU64);
}

uint64_t File::get_u64(std::string_view key, uint64_t absent) const {
    const Value *v = find(key);
    return v == nullptr ? absent : convert(impl_->maps[0], key, *v, &Value::as_u64, kWantU64);
}

double File::get_f64(std::string_view key) const {
    const Value *v = find(key);
    if (v == nullptr) fail_absent(impl_->maps[0], key, kWantF64);
    return convert(impl_->maps[0], key, *v, &Value::as_f64, kWantF64);
}

double File::get_f64(std::string_view key, double absent) const {
    const Value *v = find(key);
    return v == nullptr ? absent : convert(impl_->maps[0], key, *v, &Value::as_f64, kWantF64);
}

bool File::get_bool(std::string_view key, bool absent) const {
    const Value *v = find(key);
    return v == nullptr ? absent : convert(impl_->maps[0], key, *v, &Value::as_bool, kWantBool);
}

std::string_view File::get_string(std::string_view key) const {
    const Value *v = find(key);
    if (v == nullptr) fail_absent(impl_->maps[0], key, kWantString);
    return convert(impl_->maps[0], key, *v, &Value::as_string, kWantString);
}

std::string_view File::get_string(std::string_view key, std::string_view absent) const {
    const Value *v = find(key);
    return v == nullptr ? absent : convert(impl_->maps[0], key, *v, &Value::as_string, kWantString);
}

// Four requests at a time keep a disk busy whose every request takes a while, and file pages that are in memory already
// are mapped by as many processors.
struct Prefetch::Impl {
    struct Piece {
        const Mapping *map;
        uint64_t begin, end;
    };

    Impl(std::vector<Piece> all, bool own) : pieces(std::move(all)), copy(own) {
        for (const Piece &p : pieces) total += p.end - p.begin;
        const size_t most = std::min<size_t>(4, pieces.size());
        while (threads.size() < most) try {
                threads.emplace_back([this] { work(); });
            } catch (const std::system_error &) {
                if (threads.empty()) throw;
                break;
            }
    }
    ~Impl() {
        next = pieces.size();
        for (std::thread &t : threads) t.join();
    }
    Impl(const Impl &) = delete;
    Impl &operator=(const Impl &) = delete;

    void work() {
        for (size_t i; (i = next.fetch_add(1)) < pieces.size();) {
            const Piece &p = pieces[i];
            std::exception_ptr failed;
            try {
                copy ? p.map->copy(p.begin, p.end) : p.map->load(p.begin, p.end);
            } catch (...) {
                failed = std::current_exception();
            }
            const std::lock_guard lock(mutex);
            if (failed)
                error = failed;
            else
                loaded.push_back(p.end - p.begin);
            changed.notify_one();
        }
    }

    const std::vector<Piece> pieces;
    const bool copy;
    uint64_t total = 0, done = 0;  // bytes; `done` as `wait` has seen it
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<uint64_t> loaded;  // bytes of pieces that are there and that `wait` has not seen
    std::exception_ptr error;
    std::vector<std::thread> threads;
};

Prefetch::Prefetch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Prefetch::Prefetch(Prefetch &&) noexcept = default;
Prefetch &Prefetch::operator=(Prefetch &&) noexcept = default;
Prefetch::~Prefetch() = default;

uint64_t Prefetch::bytes() const { return impl_->total; }

bool Prefetch::wait(const std::function<bool(uint64_t done, uint64_t total)> &progress) {
    Impl &i = *impl_;
    while (i.done < i.total) {
        {
            std::unique_lock lock(i.mutex);
            i.changed.wait(lock, [&] { return !i.loaded.empty() || i.error; });
            if (i.error) std::rethrow_exception(i.error);
            i.done += i.loaded.back();
            i.loaded.pop_back();
        }
        if (progress && !progress(i.done, i.total)) return i.done == i.total;
    }
    return true;
}

Prefetch File::start_prefetch(Pages pages, std::span<const std::span<const std::byte>> wanted) const {
    constexpr uint64_t kPiece = uint64_t{16} << 20;
    std::vector<Prefetch::Impl::Piece> pieces;
    for (size_t i = 0; i < impl_->maps.size(); i++) {
        const Mapping &map = impl_->maps[i];
        if (pages == Pages::file_huge) map.prefer_huge_pages();
        const auto is_wanted = [&](uint64_t begin, uint64_t end) {
            const std::byte *from = map.bytes().data() + begin, *to = map.bytes().data() + end;
            return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](std::span<const std::byte> w) {
                       return w.data() < to && w.data() + w.size() > from;
                   });
        };
        for (uint64_t at = impl_->data_starts[i]; at < map.bytes().size();) {
            // Pieces end where huge pages do, so that no two threads want the same one.
            const uint64_t end = std::min<uint64_t>((at / kPiece + 1) * kPiece, map.bytes().size());
            if (is_wanted(at, end)) pieces.push_back({&map, at, end});
            at = end;
        }
    }
    return Prefetch(std::make_unique<Prefetch::Impl>(std::move(pieces), pages == Pages::own_huge));
}

void File::prefetch(const std::function<bool(uint64_t done, uint64_t total)> &progress, Pages pages) const {
    start_prefetch(pages).wait(progress);
}

}  // namespace ridge::gguf
