// The Writer: its bytes equal those that the tests' own builder makes; large tensors in pieces by several threads; no
// half file is left behind, whatever goes wrong.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <set>

#include "support.h"

namespace ridge::gguf::test {
namespace {

// The byte at `offset` of tensor `index`: says where it belongs.
std::byte pattern(size_t index, uint64_t offset) {
    const uint64_t h = (offset + 0x9E3779B97F4A7C15ull * (index + 1)) * 0xD1342543DE82EF95ull;
    return static_cast<std::byte>(h >> 56);
}

void fill_pattern(size_t index, uint64_t offset, std::span<std::byte> out) {
    for (size_t i = 0; i < out.size(); i++) out[i] = pattern(index, offset + i);
}

std::string random_bytes(size_t n) {
    const auto v = *rc::gen::container<std::vector<uint8_t>>(n, rc::gen::arbitrary<uint8_t>());
    return std::string(v.begin(), v.end());
}

constexpr size_t kScalarBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// `count` values of a type, as stored.
std::string random_values(uint32_t type, uint64_t count, int depth);

std::string random_array(int depth) {
    const auto element = *rc::gen::inRange<uint32_t>(0, depth >= 3 ? 9u : 13u);
    const auto count = *rc::gen::inRange<uint64_t>(0, 5);
    return array(element, count, random_values(element, count, depth + 1));
}

std::string random_values(uint32_t type, uint64_t count, int depth) {
    std::string out;
    for (uint64_t i = 0; i < count; i++) {
        if (type == kString)
            out += str(random_bytes(*rc::gen::inRange<size_t>(0, 9)));
        else if (type == kArray)
            out += random_array(depth);
        else if (type == kBool)
            out += static_cast<char>(*rc::gen::inRange(0, 2));
        else
            out += random_bytes(kScalarBytes[type]);
    }
    return out;
}

RawFile random_file() {
    RawFile f;
    f.alignment = *rc::gen::element<uint64_t>(8, 16, 32, 64, 4096);
    if (f.alignment != 32) f.keys.push_back({"general.alignment", kU32, le(static_cast<uint32_t>(f.alignment)), {}});
    const int keys = *rc::gen::inRange(0, 10);
    for (int i = 0; i < keys; i++) {
        const auto type = *rc::gen::inRange<uint32_t>(0, 13);
        f.keys.push_back(
            {fmt::format("key{}.é", i), type, type == kArray ? random_array(0) : random_values(type, 1, 0), {}});
    }
    const int tensors = *rc::gen::inRange(0, 6);
    for (int i = 0; i < tensors; i++) {
        const FormatInfo &format = all_formats()[*rc::gen::inRange<size_t>(0, all_formats().size())];
        std::vector<uint64_t> dims{format.block * *rc::gen::inRange<uint64_t>(1, 4)};
        const int more = *rc::gen::inRange(0, 4);
        for (int d = 0; d < more; d++) dims.push_back(*rc::gen::inRange<uint64_t>(1, 4));
        uint64_t bytes = format.bytes;
        for (uint64_t d : dims) bytes *= d;
        bytes /= format.block;
        f.tensors.push_back({fmt::format("blk.{}", i), dims, static_cast<uint32_t>(format.id), f.data.size(), {}, {}});
        for (uint64_t b = 0; b < bytes; b++) f.data += static_cast<char>(pattern(static_cast<size_t>(i), b));
        f.data.resize((f.data.size() + f.alignment - 1) / f.alignment * f.alignment, '\0');
    }
    return f;
}

TEST(GgufWrite, RandomFilesComeBackAndAreByteForByteAsExpected) {
    const TempDir dir;
    size_t values = 0, tensors = 0;
    EXPECT_TRUE(rc::check("write, compare, read, write again", [&] {
        const RawFile raw = random_file();
        const Built expected = raw.build();
        // Read what the builder made; write it with the Writer; the bytes are the same.
        const File in = File::open(dir.put("in.gguf", expected.bytes));
        RC_ASSERT(in.metadata().size() == raw.keys.size());
        Writer w(raw.alignment);
        for (size_t i = 0; i < raw.keys.size(); i++) {
            const auto &[key, v] = in.metadata()[i];
            RC_ASSERT(key == raw.keys[i].key);
            RC_ASSERT(static_cast<uint32_t>(v.type) == raw.keys[i].type);
            const size_t head = v.type == Type::array ? 12 : 0;  // element type and count
            RC_ASSERT(std::string(reinterpret_cast<const char *>(v.data), v.bytes) == raw.keys[i].value.substr(head));
            if (key != "general.alignment") w.add_value(key, v);
            values++;
        }
        for (const RawTensor &t : raw.tensors) w.add_tensor(t.name, static_cast<Format>(t.type), t.dims);
        RC_ASSERT(w.data_bytes() == raw.data.size());
        w.write(dir / "out.gguf", fill_pattern, 2);
        RC_ASSERT(read_file(dir / "out.gguf") == expected.bytes);
        const File out = File::open(dir / "out.gguf");
        RC_ASSERT(out.tensors().size() == raw.tensors.size());
        for (size_t i = 0; i < raw.tensors.size(); i++) {
            const Tensor *t = out.find_tensor(raw.tensors[i].name);
            RC_ASSERT(t != nullptr && t->n_dims == raw.tensors[i].dims.size());
            RC_ASSERT(std::equal(raw.tensors[i].dims.begin(), raw.tensors[i].dims.end(), t->shape.begin()));
            for (size_t b = 0; b < t->bytes; b++) RC_ASSERT(t->data[b] == pattern(i, b));
            tensors++;
        }
    }));
    EXPECT_GT(values, 50u);
    EXPECT_GT(tensors, 20u);
    EXPECT_EQ(dir.files(), 2u);
}

TEST(GgufWrite, TypedValues) {
    const TempDir dir;
    Writer w;
    w.add_u32("u32", 7);
    w.add_u64("u64", uint64_t{1} << 40);
    w.add_i32("i32", -7);
    w.add_f32("f32", 0.5f);
    w.add_bool("bool", true);
    w.add_string("string", "héllo");
    w.add_strings("strings", std::vector<std::string>{"a", "", std::string("x\0y", 3)});
    w.add_floats("floats", std::vector<float>{1, -2});
    w.add_i32s("ints", std::vector<int32_t>{1, -2});
    w.write(dir / "t.gguf", {});
    const File f = File::open(dir / "t.gguf");
    EXPECT_EQ(f.find("u32")->type, Type::u32);
    EXPECT_EQ(f.get_u64("u32"), 7u);
    EXPECT_EQ(f.get_u64("u64"), uint64_t{1} << 40);
    EXPECT_EQ(f.find("i32")->as_i64(), -7);
    EXPECT_EQ(f.find("f32")->type, Type::f32);
    EXPECT_EQ(f.get_f64("f32"), 0.5);
    EXPECT_TRUE(f.get_bool("bool", false));
    EXPECT_EQ(f.get_string("string"), "héllo");
    EXPECT_EQ(f.find("strings")->as_strings(), (std::vector<std::string_view>{"a", "", std::string_view("x\0y", 3)}));
    EXPECT_EQ(f.find("floats")->as_floats(), (std::vector<float>{1, -2}));
    EXPECT_EQ(f.find("ints")->as_ints(), (std::vector<int64_t>{1, -2}));
    EXPECT_EQ(f.find("general.alignment"), nullptr);
}

TEST(GgufWrite, LargeTensorsInPiecesByThreads) {
    const TempDir dir;
    Writer w(64);
    w.add_tensor("rows", Format::Q8_0, std::vector<uint64_t>{1000 * 32, 200});      // 34,000 bytes per row, 6.8 MB
    w.add_tensor("long rows", Format::F32, std::vector<uint64_t>{1100001, 2});      // 4.4 MB per row
    w.add_tensor("long blocks", Format::Q4_K, std::vector<uint64_t>{256 * 40000});  // 5.8 MB, one row
    w.add_tensor("small", Format::F32, std::vector<uint64_t>{1});
    const std::vector<uint64_t> row{34000, 4400004, 256 * 40000 / 256 * 144, 4}, unit{34000, 1024, 144, 4};
    std::mutex mutex;
    std::set<std::pair<size_t, uint64_t>> seen;
    uint64_t last = 0;
    w.write(
        dir / "large.gguf",
        [&](size_t index, uint64_t offset, std::span<std::byte> out) {
            fill_pattern(index, offset, out);
            const std::lock_guard lock(mutex);
            EXPECT_TRUE(seen.emplace(index, offset).second);
            EXPECT_EQ(offset % row[index] % unit[index], 0u);
            EXPECT_TRUE(out.size() % row[index] == 0 || offset / row[index] == (offset + out.size() - 1) / row[index]);
            EXPECT_LE(out.size(), size_t{4} << 20);
        },
        4,
        [&](uint64_t done, uint64_t total) {
            EXPECT_GT(done, last);
            EXPECT_EQ(total, 6800000u + 8800008u + 5760000u + 4u);
            last = done;
        });
    EXPECT_EQ(last, 6800000u + 8800008u + 5760000u + 4u);
    const File f = File::open(dir / "large.gguf");
    uint64_t wrong = 0, checked = 0;
    for (size_t i = 0; i < f.tensors().size(); i++)
        for (size_t b = 0; b < f.tensors()[i].bytes; b++, checked++) wrong += f.tensors()[i].data[b] != pattern(i, b);
    EXPECT_EQ(checked, last);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(f.file_bytes() % 64, 0u);
    EXPECT_EQ(dir.files(), 1u);
}

TEST(GgufWrite, AFailureLeavesTheOldFileAndNothingElse) {
    const TempDir dir;
    const auto path = dir.put("old.gguf", "the old one");
    Writer w;
    w.add_tensor("t", Format::F32, std::vector<uint64_t>{1 << 20, 10});
    for (unsigned threads : {1u, 3u}) {
        std::atomic<int> calls{0};
        auto broken = [&](size_t, uint64_t, std::span<std::byte>) {
            if (++calls == 4) throw std::runtime_error("no more numbers");
        };
        EXPECT_THROW(w.write(path, broken, threads), std::runtime_error);
        EXPECT_THROW(w.write(path, fill_pattern, threads, [](uint64_t, uint64_t) { throw 1; }), int);
        EXPECT_EQ(read_file(path), "the old one");
        EXPECT_EQ(dir.files(), 1u);
    }
    w.write(path, fill_pattern, 2);
    EXPECT_EQ(File::open(path).tensors().size(), 1u);
    EXPECT_EQ(dir.files(), 1u);
}

TEST(GgufWrite, ALinkKeepsPointingAndPermissionsFollowTheMask) {
    const TempDir dir;
    std::filesystem::create_directory(dir / "disk");
    const auto target = dir.put("disk/model.gguf", "old");
    std::filesystem::create_symlink("disk/model.gguf", dir / "link.gguf");
    Writer().write(dir / "link.gguf", {});
    EXPECT_TRUE(std::filesystem::is_symlink(dir / "link.gguf"));
    EXPECT_EQ(File::open(target).version(), 3u);
    const mode_t mask = umask(0);
    umask(mask);
    struct stat st {};
    ASSERT_EQ(stat(target.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0666 & ~mask);
}

TEST(GgufWrite, NoRoom) {
    const TempDir dir;
    const auto never = [](size_t, uint64_t, std::span<std::byte>) { throw std::logic_error("space was not checked"); };
    Writer huge;
    huge.add_tensor("t", Format::F32, std::vector<uint64_t>{1ull << 30, 1 << 20});  // 4 PiB
    std::string message = error_of([&] { huge.write(dir / "huge.gguf", never); });
    expect_words(message, {"huge.gguf", "4503599627370", "free"});
    report("writing more than the disk holds", message, dir.path());
    EXPECT_EQ(dir.files(), 0u);

    // A limit on file sizes stops the write as a full disk does.
    struct rlimit old {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit low {
        1 << 20, old.rlim_max
    };
    auto handler = std::signal(SIGXFSZ, SIG_IGN);
    Writer w;
    w.add_tensor("t", Format::F32, std::vector<uint64_t>{1 << 20});
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    message = error_of([&] { w.write(dir / "limit.gguf", fill_pattern); });
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
    expect_words(message, {"limit.gguf", "ulimit -f"});
    report("writing more than ulimit -f allows", message, dir.path());
    EXPECT_EQ(dir.files(), 0u);
}

TEST(GgufWrite, WhereNoFileCanBe) {
    const TempDir dir;
    std::filesystem::create_directory(dir / "folder");
    ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
    auto check = [&](const std::string &what, const std::filesystem::path &path, std::vector<std::string> words) {
        const std::string message = error_of([&] { Writer().write(path, {}); });
        words.push_back(path.string());
        expect_words(message, words);
        report(what, message, dir.path());
    };
    check("writing to a directory", dir / "folder", {"directory"});
    check("writing to a pipe", dir / "pipe", {"no regular file"});
    check("writing into a missing folder", dir / "none/x.gguf", {"create the folder"});
    EXPECT_EQ(dir.files(), 2u);
}

TEST(GgufWrite, UsageErrors) {
    using Shape = std::vector<uint64_t>;
    auto check = [](const std::function<void(Writer &)> &f, const std::vector<std::string> &words) {
        Writer w;
        w.add_u32("key", 1);
        w.add_tensor("t", Format::F32, Shape{1});
        expect_words(error_of([&] { f(w); }, ErrorKind::usage), words);
    };
    check([](Writer &w) { w.add_u32("key", 2); }, {"'key'", "before"});
    check([](Writer &w) { w.add_u32("", 2); }, {"key", "1 to"});
    check([](Writer &w) { w.add_string("a\xff", ""); }, {"a\\xff", "UTF-8"});
    check([](Writer &w) { w.add_u32("general.alignment", 64); }, {"constructor"});
    check([](Writer &w) { w.add_tensor("t", Format::F16, Shape{1}); }, {"'t'", "before"});
    check([](Writer &w) { w.add_tensor(std::string(64, 'n'), Format::F16, Shape{1}); }, {"64 bytes", "63"});
    check([](Writer &w) { w.add_tensor("u", Format::Q4_K, Shape{128, 2}); }, {"128", "256", "Q4_K"});
    check([](Writer &w) { w.add_tensor("u", Format::F32, Shape{}); }, {"0 dimensions"});
    check([](Writer &w) { w.add_tensor("u", Format::F32, Shape{1, 1, 1, 1, 1}); }, {"5 dimensions"});
    check([](Writer &w) { w.add_tensor("u", Format::F32, Shape{1, 0}); }, {"1 x 0"});
    check([](Writer &w) { w.add_tensor("u", Format::F32, Shape{1ull << 40, 1ull << 40}); }, {"too large"});
    for (uint64_t a : {0, 4, 48, 1 << 21}) error_of([&] { Writer w(a); }, ErrorKind::usage);
}

}  // namespace
}  // namespace ridge::gguf::test
