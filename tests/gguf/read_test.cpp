// Well-formed files: every value and tensor as it was put in; look-ups and what they say; large files open at once.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>

#include "gguf/printable.h"
#include "support.h"

namespace ridge::gguf::test {
namespace {

TEST(GgufRead, ValuesAndTensorsOfVersions2And3) {
    const TempDir dir;
    for (uint32_t version : {2u, 3u}) {
        RawFile raw = valid_file();
        raw.version = version;
        const Built b = raw.build();
        const auto path = dir.put("v.gguf", b.bytes);
        const File f = File::open(path);
        EXPECT_EQ(f.version(), version);
        EXPECT_EQ(f.alignment(), 32u);
        EXPECT_EQ(f.file_bytes(), b.bytes.size());
        EXPECT_EQ(f.paths(), std::vector{path});
        ASSERT_EQ(f.metadata().size(), raw.keys.size());
        EXPECT_EQ(f.metadata()[4].first, "tokenizer.add_bos");
        EXPECT_EQ(f.get_string("general.architecture"), "llama");
        EXPECT_EQ(f.get_u64("llama.block_count"), 2u);
        EXPECT_EQ(f.get_f64("llama.rope.freq_base"), 10000.0);
        EXPECT_TRUE(f.get_bool("tokenizer.add_bos", false));
        EXPECT_EQ(f.find("tokenizer.tokens")->as_strings(), (std::vector<std::string_view>{"a", "", "bc"}));
        EXPECT_EQ(f.find("some.floats")->as_floats(), (std::vector<float>{1.5f, -2.0f}));
        EXPECT_EQ(f.find("some.flags")->as_ints(), (std::vector<int64_t>{0, 1, 0}));
        EXPECT_EQ(f.find("some.i64")->as_i64(), -7);
        EXPECT_EQ(preview(*f.find("some.nested")), "[2 arrays]");

        ASSERT_EQ(f.tensors().size(), 3u);
        const Tensor *t = f.find_tensor("b.weight");
        ASSERT_EQ(t, &f.tensors()[1]);
        EXPECT_EQ(t->n_dims, 4u);
        EXPECT_EQ(t->shape, (std::array<uint64_t, 4>{4, 3, 2, 1}));
        EXPECT_EQ(t->format, find_format("F32"));
        EXPECT_EQ(t->bytes, 96u);
        EXPECT_EQ(t->offset, b.at("data") + 96);
        EXPECT_EQ(std::memcmp(t->data, b.bytes.data() + t->offset, t->bytes), 0);
        EXPECT_EQ(f.find_tensor("a.weight")->bytes, 72u);
        EXPECT_EQ(f.find_tensor("c.weight")->format_name, "Q4_K");
        EXPECT_EQ(f.find_tensor("a.weigh"), nullptr);
        EXPECT_EQ(f.find("zzz"), nullptr);
    }
}

TEST(GgufRead, EveryScalarTypeConvertsOnlyWhereItFits) {
    RawFile raw;
    const double inf = std::numeric_limits<double>::infinity();
    raw.keys = {{"u8", kU8, "\xff", {}},
                {"i8", kI8, "\xff", {}},
                {"u16", kU16, le<uint16_t>(65535), {}},
                {"i16", kI16, le<int16_t>(-2), {}},
                {"u32", kU32, le<uint32_t>(4000000000), {}},
                {"i32", kI32, le<int32_t>(-3), {}},
                {"f32", kF32, le<float>(0.5f), {}},
                {"bool", kBool, std::string(1, '\0'), {}},
                {"u64", kU64, le<uint64_t>(~uint64_t{0}), {}},
                {"i64", kI64, le<int64_t>(std::numeric_limits<int64_t>::min()), {}},
                {"f64", kF64, le(inf), {}},
                {"u64s", kArray, array(kU64, 2, le<uint64_t>(1) + le(~uint64_t{0})), {}},
                {"i8s", kArray, array(kI8, 2, "\xfe\x7f"), {}},
                {"f64s", kArray, array(kF64, 1, le(0.25)), {}},
                {"none", kArray, array(kString, 0, ""), {}}};
    const std::string bytes = raw.build().bytes;
    const Part p = parse(std::as_bytes(std::span(bytes)), "x");
    auto v = [&](std::string_view key) -> const Value & {
        for (const auto &[k, value] : p.metadata)
            if (k == key) return value;
        throw std::logic_error("no such key");
    };
    EXPECT_EQ(v("u8").as_u64(), 255u);
    EXPECT_EQ(v("i8").as_i64(), -1);
    EXPECT_EQ(v("i8").as_u64(), std::nullopt);
    EXPECT_EQ(v("u16").as_i64(), 65535);
    EXPECT_EQ(v("i16").as_f64(), -2.0);
    EXPECT_EQ(v("u32").as_u64(), 4000000000u);
    EXPECT_EQ(v("i32").as_u64(), std::nullopt);
    EXPECT_EQ(v("f32").as_f64(), 0.5);
    EXPECT_EQ(v("f32").as_u64(), std::nullopt);
    EXPECT_EQ(v("bool").as_bool(), false);
    EXPECT_EQ(v("bool").as_u64(), 0u);
    EXPECT_EQ(v("bool").as_f64(), std::nullopt);
    EXPECT_EQ(v("u8").as_bool(), std::nullopt);
    EXPECT_EQ(v("u64").as_u64(), ~uint64_t{0});
    EXPECT_EQ(v("u64").as_i64(), std::nullopt);
    EXPECT_EQ(v("i64").as_i64(), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(v("f64").as_f64(), inf);
    EXPECT_EQ(v("u64s").as_ints(), std::nullopt);
    EXPECT_EQ(v("i8s").as_ints(), (std::vector<int64_t>{-2, 127}));
    EXPECT_EQ(v("i8s").as_floats(), std::nullopt);
    EXPECT_EQ(v("f64s").as_floats(), (std::vector<float>{0.25f}));
    EXPECT_EQ(v("none").as_strings()->size(), 0u);
    EXPECT_EQ(v("none").as_u64(), std::nullopt);
    EXPECT_EQ(preview(v("i8s")), "[-2, 127]");
    EXPECT_EQ(preview(v("i8s"), 1), "[-2, ... (2 elements)]");
    EXPECT_EQ(type_text(v("none")), "array of string");
}

TEST(GgufRead, TypedLookUpsSayWhatIsWrong) {
    const TempDir dir;
    const Built b = valid_file().build();
    const File f = File::open(dir.put("typed.gguf", b.bytes));
    EXPECT_EQ(f.get_u64("absent", 5), 5u);
    EXPECT_EQ(f.get_f64("absent", 0.5), 0.5);
    EXPECT_EQ(f.get_string("absent", "x"), "x");
    EXPECT_TRUE(f.get_bool("absent", true));
    EXPECT_EQ(f.get_f64("llama.block_count"), 2.0);
    auto check = [&](const std::string &what, const std::function<void()> &get, std::vector<std::string> words) {
        const std::string message = error_of(get);
        words.push_back("typed.gguf");
        expect_words(message, words);
        report(what, message, dir.path());
    };
    const std::string at = fmt::format("byte {}", b.at("value 10"));
    check("key a model needs is missing", [&] { f.get_u64("llama.context_length"); },
          {"'llama.context_length'", "missing", "integer"});
    check("negative number where a count is wanted", [&] { f.get_u64("some.i64"); },
          {at, "'some.i64'", "-7", "i64", "0 or more"});
    check("the same with a default", [&] { f.get_u64("some.i64", 1); }, {at, "-7"});
    check("string where a number is wanted", [&] { f.get_f64("general.architecture"); },
          {"\"llama\"", "string", "a number"});
    check("array where a string is wanted", [&] { f.get_string("tokenizer.tokens", ""); },
          {"array of string", "a string"});
    check("number where a bool is wanted", [&] { f.get_bool("llama.block_count", true); }, {"2 (u32)", "a bool"});
}

TEST(GgufRead, AlignmentFromTheFile) {
    const TempDir dir;
    for (uint32_t a : {8u, 64u, 4096u, 1u << 20}) {
        RawFile raw;
        raw.alignment = a;
        raw.keys = {{"general.alignment", kU32, le(a), {}}};
        raw.tensors = {{"i", {2}, kTensorI32, a, {}, {}},
                       {"d", {1}, kTensorF64, 0, {}, {}}};  // order and gaps are free
        raw.data = std::string(a + 8, 'x');
        const Built b = raw.build();
        const File f = File::open(dir.put("a.gguf", b.bytes));
        EXPECT_EQ(f.alignment(), a);
        EXPECT_EQ(f.find_tensor("d")->offset, b.at("data"));
        EXPECT_EQ(f.find_tensor("i")->offset, b.at("data") + a);
        EXPECT_EQ(f.find_tensor("i")->format, nullptr);
        EXPECT_EQ(f.find_tensor("i")->format_name, "I32");
    }
}

TEST(GgufRead, NothingButAHeader) {
    const TempDir dir;
    const File f = File::open(dir.put("h.gguf", RawFile().build().bytes.substr(0, 24)));
    EXPECT_TRUE(f.metadata().empty());
    EXPECT_TRUE(f.tensors().empty());
    f.prefetch([](uint64_t, uint64_t) { return true; });
}

TEST(GgufRead, PrefetchReportsUpToTheEndAndStopsWhenTold) {
    const TempDir dir;
    RawFile raw;
    raw.tensors = {{"t", {40u << 20}, kTensorF32, 0, {}, {}}};  // 160 MiB, all holes
    const Built b = raw.build();
    const auto path = dir.put("p.gguf", b.bytes);
    std::filesystem::resize_file(path, b.bytes.size() + (uint64_t{160} << 20));
    const File f = File::open(path);
    std::vector<uint64_t> steps;
    f.prefetch([&](uint64_t done, uint64_t total) {
        EXPECT_EQ(total, uint64_t{160} << 20);
        steps.push_back(done);
        return true;
    });
    ASSERT_GE(steps.size(), 2u);
    EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
    EXPECT_EQ(steps.back(), uint64_t{160} << 20);
    int calls = 0;
    f.prefetch([&](uint64_t, uint64_t) { return ++calls < 2; });
    EXPECT_EQ(calls, 2);
    f.prefetch({});
}

// All of the tensor data is in memory afterwards and says what the file says, in whichever pages; so does the metadata.
TEST(GgufRead, PrefetchBringsEveryPage) {
    const TempDir dir;
    RawFile raw = valid_file();
    raw.data.clear();
    constexpr uint64_t kBytes = (uint64_t{80} << 20) + 12340;  // ends within a page
    raw.tensors = {{"t", {kBytes / 4}, kTensorF32, 0, {}, {}}};
    const Built b = raw.build();
    const auto path = dir.put("p.gguf", b.bytes);
    {
        std::ofstream out(path, std::ios::app | std::ios::binary);
        std::vector<uint32_t> piece(kBytes / 4 / 5);
        for (int p = 0; p < 5; p++) {
            for (size_t i = 0; i < piece.size(); i++) piece[i] = static_cast<uint32_t>(i * 2654435761u + p);
            out.write(reinterpret_cast<const char *>(piece.data()), static_cast<std::streamsize>(piece.size() * 4));
        }
    }
    for (Pages pages : {Pages::file, Pages::file_huge, Pages::own_huge}) {
        const File f = File::open(path);
        uint64_t calls = 0;
        f.prefetch([&](uint64_t, uint64_t) { return ++calls > 0; }, pages);
        EXPECT_GE(calls, 5u);
        const Tensor &t = *f.find_tensor("t");
        ASSERT_EQ(t.bytes, kBytes);
        EXPECT_EQ((reinterpret_cast<uintptr_t>(t.data) - t.offset) % (2 << 20), 0u);
        const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        const auto first = reinterpret_cast<uintptr_t>(t.data) / page * page;
        const size_t bytes = reinterpret_cast<uintptr_t>(t.data) + t.bytes - first;
        std::vector<unsigned char> present((bytes + page - 1) / page);
        ASSERT_EQ(mincore(reinterpret_cast<void *>(first), bytes, present.data()), 0);
        EXPECT_TRUE(std::all_of(present.begin(), present.end(), [](unsigned char c) { return (c & 1) != 0; }));
        size_t wrong = 0;
        const auto *values = reinterpret_cast<const uint32_t *>(t.data);
        const size_t each = kBytes / 4 / 5;
        for (size_t i = 0; i < 5 * each; i++)
            wrong += values[i] != static_cast<uint32_t>(i % each * 2654435761u + i / each);
        EXPECT_EQ(wrong, 0u);
        EXPECT_EQ(f.get_string("general.architecture"), "llama");
    }
}

TEST(GgufRead, ACopyIsThisProcessesOwn) {
    const TempDir dir;
    RawFile raw;
    raw.tensors = {{"t", {1u << 20}, kTensorF32, 0, {}, {}}};  // 4 MiB
    const Built b = raw.build();
    const auto path = dir.put("p.gguf", b.bytes + std::string(size_t{4} << 20, 'a'));
    const File mapped = File::open(path), copied = File::open(path);
    mapped.prefetch({}, Pages::file);
    copied.prefetch({}, Pages::own_huge);
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('b').flush();
    const auto last = [](const File &f) { return std::to_integer<char>(f.find_tensor("t")->data[(4 << 20) - 1]); };
    EXPECT_EQ(last(mapped), 'b');
#if defined(__linux__)
    EXPECT_EQ(last(copied), 'a');
#endif
}

TEST(GgufRead, PrefetchOfAFileThatBecameShorterIsAnError) {
    const TempDir dir;
    RawFile raw;
    raw.tensors = {{"t", {10u << 20}, kTensorF32, 0, {}, {}}};  // 40 MiB
    const Built b = raw.build();
    const auto path = dir.put("p.gguf", b.bytes);
    std::filesystem::resize_file(path, b.bytes.size() + (uint64_t{40} << 20));
    const File f = File::open(path);
    std::filesystem::resize_file(path, b.bytes.size() + (uint64_t{20} << 20));
    for (Pages pages : {Pages::file, Pages::file_huge, Pages::own_huge}) try {
            f.prefetch({}, pages);
            ADD_FAILURE() << "loaded";
        } catch (const Error &e) {
            EXPECT_EQ(e.kind(), ErrorKind::file);
            EXPECT_NE(std::string(e.what()).find("became shorter"), std::string::npos);
        }
}

// The header of a 30B model: 151,936 tokens and merges, 579 tensors, 20 GB of data that take no room on the disk.
TEST(GgufRead, TwentyGigabytesOpenWellUnderASecond) {
    const TempDir dir;
    RawFile raw;
    std::string tokens;
    constexpr uint64_t kTokens = 151936;
    for (uint64_t i = 0; i < kTokens; i++) tokens += str(fmt::format("token{}", i));
    raw.keys = {{"general.architecture", kString, str("qwen3moe"), {}},
                {"tokenizer.ggml.tokens", kArray, array(kString, kTokens, tokens), {}},
                {"tokenizer.ggml.merges", kArray, array(kString, kTokens, tokens), {}},
                {"tokenizer.ggml.scores", kArray, array(kF32, kTokens, std::string(kTokens * 4, '\0')), {}}};
    constexpr uint64_t kTensors = 579, kRows = 30000;  // of 2048 weights in 1152 bytes: 34.6 MB each, 20 GB together
    for (uint64_t i = 0; i < kTensors; i++)
        raw.tensors.push_back({fmt::format("blk.{}.weight", i), {2048, kRows}, kTensorQ4_K, i * kRows * 1152, {}, {}});
    const Built b = raw.build();
    const auto path = dir.put("large.gguf", b.bytes);
    std::error_code error;
    std::filesystem::resize_file(path, b.bytes.size() + kTensors * kRows * 1152, error);
    struct stat st {};
    if (error || stat(path.c_str(), &st) != 0 || st.st_blocks > 100000) GTEST_SKIP() << "no sparse files here";

    start_allocation_meter();
    const auto start = std::chrono::steady_clock::now();
    const File f = File::open(path);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 0.3);
    EXPECT_LT(peak_allocation(), 400000u);  // tensors and indices; nothing of the vocabulary
    EXPECT_GT(f.file_bytes(), uint64_t{20} * 1000 * 1000 * 1000);
    EXPECT_EQ(f.find_tensor("blk.578.weight")->bytes, kRows * 1152);
    EXPECT_EQ(f.find("tokenizer.ggml.tokens")->as_strings()->at(151935), "token151935");
    RecordProperty("milliseconds", std::to_string(took.count() * 1000));
}

// Counts are checked against the file's size, but a sparse file has size for nothing: zeros are refused as they come.
TEST(GgufRead, ALieInALargeSparseFileAllocatesNothing) {
    const TempDir dir;
    for (const char *field : {"tensors", "metadata"}) {
        RawFile raw;
        (field == std::string("tensors") ? raw.n_tensors : raw.n_metadata) = 500000000;
        const auto path = dir.put("lie.gguf", raw.build().bytes);
        std::error_code error;
        std::filesystem::resize_file(path, uint64_t{20} << 30, error);
        if (error) GTEST_SKIP() << "no sparse files here";
        start_allocation_meter();
        expect_words(error_of([&] { File::open(path); }), {"byte 24", "empty"});
        EXPECT_LT(peak_allocation(), 16384u);
    }
}

TEST(GgufRead, PrintableEscapesWhatATerminalObeys) {
    EXPECT_EQ(printable("plain blk.0 é 漢 🙂"), "plain blk.0 é 漢 🙂");
    EXPECT_EQ(printable("a\nb\tc\\d"), "a\\nb\\tc\\\\d");
    EXPECT_EQ(printable("\x1b[2J\x7f"), "\\u001b[2J\\u007f");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\u009b31m");  // CSI in C1
    EXPECT_EQ(printable("\xe2\x80\xae"
                        "gpj"),
              "\\u{202e}gpj");  // right-to-left override
    EXPECT_EQ(printable("\xff\xc3(\xed\xa0\x80"), "\\xff\\xc3(\\xed\\xa0\\x80");
    EXPECT_EQ(printable("\xf0\x9f\x99"), "\\xf0\\x9f\\x99");  // cut inside a character
    EXPECT_EQ(printable("abcdef", 3), "abc...");
    EXPECT_EQ(printable("abc", 3), "abc");
    EXPECT_FALSE(valid_utf8("\xf4\x90\x80\x80"));
    EXPECT_FALSE(valid_utf8("\xe0\x80\x80"));
    EXPECT_TRUE(valid_utf8("\xf4\x8f\xbf\xbf"));
}

}  // namespace
}  // namespace ridge::gguf::test
