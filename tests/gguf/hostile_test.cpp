// Files with one thing wrong each: every one gets an error of kind `file` that names the file, the byte, the field and
// what is wrong, allocates no more than the file justifies, and crashes nothing. RIDGE_PRINT_ERRORS=1 prints the table.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/stat.h>

#include <functional>
#include <limits>

#include "support.h"

namespace ridge::gguf::test {
namespace {

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

struct Case {
    std::string what;
    std::string bytes;
    size_t offset;
    std::vector<std::string> words;
};

// valid_file() with one change; the error names the byte where `field` begins, plus `delta`.
Case bad(std::string what, const std::function<void(RawFile &)> &change, const std::string &field,
         std::vector<std::string> words, size_t delta = 0) {
    RawFile f = valid_file();
    change(f);
    const Built b = f.build();
    return {std::move(what), b.bytes, b.at(field) + delta, std::move(words)};
}

Case foreign(std::string what, std::string bytes, std::vector<std::string> words) {
    bytes.resize(std::max<size_t>(bytes.size(), 64), ' ');
    words.push_back("magic");
    return {std::move(what), std::move(bytes), 0, std::move(words)};
}

// Key 5 of the valid file is an array of strings; `value` replaces it, and with it the type.
Case bad_array(std::string what, const std::string &value, size_t delta, std::vector<std::string> words) {
    words.push_back("tokenizer.tokens");
    return bad(
        std::move(what), [&](RawFile &f) { f.keys[5].value = value; }, "value 5", std::move(words), delta);
}

void add_header_cases(std::vector<Case> &cases) {
    using F = RawFile;
    cases.push_back(foreign("safetensors", le<uint64_t>(200) + "{\"__metadata__\":{}}", {"safetensors", "convert"}));
    cases.push_back(foreign("GGML of 2023", "lmgg\1\0\0\0", {"GGML", "convert"}));
    cases.push_back(foreign("GGMF of 2023", "fmgg\1\0\0\0", {"GGMF", "convert"}));
    cases.push_back(foreign("GGJT of 2023", "tjgg\3\0\0\0", {"GGJT", "convert"}));
    cases.push_back(foreign("GGLA adapter of 2023", "algg\1\0\0\0", {"GGLA", "convert"}));
    cases.push_back(foreign("big-endian magic", "FUGG\0\0\0\3", {"big-endian"}));
    cases.push_back(foreign("PyTorch zip", "PK\3\4", {"PyTorch", "convert"}));
    cases.push_back(foreign("PyTorch pickle", "\x80\2}q", {"PyTorch", "convert"}));
    cases.push_back(foreign("gzip", "\x1f\x8b\x08", {"gzip", "unpack"}));
    cases.push_back(foreign("zstd", "\x28\xb5\x2f\xfd", {"zstd", "unpack"}));
    cases.push_back(
        foreign("Git LFS pointer", "version https://git-lfs.github.com/spec/v1\n", {"LFS", "git lfs pull"}));
    cases.push_back(foreign("web page", "<!DOCTYPE html>", {"web page"}));
    cases.push_back(foreign("zeros", std::string(64, '\0'), {"zeros", "not complete"}));
    cases.push_back(
        foreign("text with an escape sequence", "Entry\x1b[31m not found", {"not a GGUF file", "Entry\\u001b"}));
    cases.push_back({"one byte", "G", 0, {"size", "truncated", "1 bytes"}});
    cases.push_back({"header cut", valid_file().build().bytes.substr(0, 23), 0, {"size", "truncated", "23 bytes"}});
    cases.push_back(bad("version 0", [](F &f) { f.version = 0; }, "version", {"version", "unknown"}));
    cases.push_back(bad("version 1", [](F &f) { f.version = 1; }, "version", {"version 1", "convert"}));
    cases.push_back(bad("version 4", [](F &f) { f.version = 4; }, "version", {"version 4", "unknown", "2 and 3"}));
    cases.push_back(bad("big-endian version 3", [](F &f) { f.version = 0x03000000; }, "version", {"big-endian"}));
    cases.push_back(bad("n_tensors 2^64-1", [](F &f) { f.n_tensors = kHuge; }, "n_tensors", {"n_tensors", "room"}));
    cases.push_back(
        bad("n_tensors 2^40", [](F &f) { f.n_tensors = uint64_t{1} << 40; }, "n_tensors", {"n_tensors", "room"}));
    cases.push_back(bad("n_metadata 2^64-1", [](F &f) { f.n_metadata = kHuge; }, "n_metadata", {"n_metadata", "room"}));
    cases.push_back(
        bad("n_metadata 2^40", [](F &f) { f.n_metadata = uint64_t{1} << 40; }, "n_metadata", {"n_metadata"}));
    // Times 48, the size of an entry in some readers, these wrap around to 32 bytes.
    static constexpr uint64_t kWraps = 0x0555555555555556;
    cases.push_back(bad("n_tensors times 48 wraps", [](F &f) { f.n_tensors = kWraps; }, "n_tensors", {"room"}));
    cases.push_back(bad("n_metadata times 48 wraps", [](F &f) { f.n_metadata = kWraps; }, "n_metadata", {"room"}));
    // The first tensor is read as a key of type u16 (its n_dims, 2), and the rest of it as the first tensor.
    cases.push_back(bad(
        "n_metadata one too many", [](F &f) { f.n_metadata = f.keys.size() + 1; }, "tensor 0 dims",
        {"tensor 0", "name", "length"}, 2));
}

void add_key_cases(std::vector<Case> &cases) {
    using F = RawFile;
    auto key = [&](std::string what, std::string name, std::vector<std::string> words) {
        words.push_back("key");
        cases.push_back(bad(
            std::move(what), [&](F &f) { f.keys[2].key = name; }, "key 2", std::move(words)));
    };
    key("empty key", "", {"empty"});
    key("key of 65,536 bytes", std::string(65536, 'k'), {"65536 bytes", "65535"});
    key("key with NUL", std::string("a\0b", 3), {"NUL", "a\\u0000b"});
    key("key that is not UTF-8", "a\xff", {"UTF-8", "a\\xff"});
    key("key in overlong UTF-8", "a\xc0\xaf", {"UTF-8", "\\xc0\\xaf"});
    key("duplicate key", "general.architecture", {"duplicate", "entry 0"});
    cases.push_back(
        bad("key length 2^64-1", [](F &f) { f.keys[2].key_length = kHuge; }, "key 2", {"metadata 2", "length"}));
    cases.push_back(
        bad("key length wraps around", [](F &f) { f.keys[2].key_length = kHuge - 7; }, "key 2", {"length"}));
    cases.push_back(bad("general.alignment twice", [](F &f) { f.keys[2].key = "general.alignment"; }, "key 2",
                        {"'general.alignment'", "duplicate", "entry 1"}));
    cases.push_back(bad("value type 13", [](F &f) { f.keys[2].type = 13; }, "type 2",
                        {"llama.block_count", "value type", "unknown", "12 (f64)"}));
    cases.push_back(bad("value type 2^32-1", [](F &f) { f.keys[2].type = 0xffffffff; }, "type 2", {"unknown"}));
    cases.push_back(bad("bool of 2", [](F &f) { f.keys[4].value = "\2"; }, "value 4", {"bool", "is 2", "0 or 1"}));
    cases.push_back(bad(
        "bool of 255 in an array", [](F &f) { f.keys[7].value = array(kBool, 3, "\1\1\xff"); }, "value 7",
        {"some.flags", "bool", "is 255"}, 14));
    cases.push_back(bad("string length 2^64-1", [](F &f) { f.keys[0].value = le(kHuge) + "llama"; }, "value 0",
                        {"general.architecture", "string", "length"}));
    cases.push_back(bad("string longer than the file", [](F &f) { f.keys[0].value = le<uint64_t>(5000) + "llama"; },
                        "value 0", {"general.architecture", "5000 bytes"}));
    cases.push_back(
        bad_array("array of an unknown type", array(99, 3, "abc"), 0, {"array element type", "unknown", "99"}));
    cases.push_back(
        bad_array("array of 2^40 strings", array(kString, uint64_t{1} << 40, str("a")), 4, {"array length", "room"}));
    cases.push_back(bad_array("array of 2^40 bytes", array(kU8, uint64_t{1} << 40, "a"), 4, {"array length", "room"}));
    cases.push_back(
        bad_array("array of 2^61 f64 (size wraps to 0)", array(kF64, uint64_t{1} << 61, ""), 4, {"array length"}));
    cases.push_back(bad_array("array of 2^64-1 u16", array(kU16, kHuge, ""), 4, {"array length", "u16"}));
    cases.push_back(
        bad_array("array of 2^60 arrays", array(kArray, uint64_t{1} << 60, array(kU8, 0, "")), 4, {"array length"}));
    cases.push_back(
        bad_array("string in an array too long", array(kString, 2, str("a") + le(kHuge)), 21, {"string in array"}));
    cases.push_back(bad_array("array in an array of 2^61 f64 (size wraps to 0)",
                              array(kArray, 1, array(kF64, uint64_t{1} << 61, "")), 16, {"array length", "f64"}));
    cases.push_back(bad_array("array in an array of an unknown type", array(kArray, 1, array(99, 1, "a")), 12,
                              {"array element type", "unknown", "99"}));
    std::string deep = array(kU8, 0, "");
    for (int i = 0; i < 5; i++) deep = array(kArray, 1, deep);
    cases.push_back(bad_array("arrays nested 6 deep", deep, 48, {"nested", "4 deep"}));
    std::string deeper;
    for (int i = 0; i < 20000; i++) deeper += array(kArray, 1, "");
    cases.push_back(bad_array("arrays nested 20,000 deep", deeper, 48, {"nested"}));
    cases.push_back(bad("key with an escape sequence and bad type",
                        [](F &f) {
                            f.keys[2] = {"evil\x1b]0;owned\a" + std::string(200, 'x'), 77, "", {}};
                        },
                        "type 2", {"evil\\u001b]0;owned\\u0007xxx", "..."}));

    auto alignment = [&](std::string what, uint32_t type, const std::string &value, std::vector<std::string> words) {
        words.push_back("general.alignment");
        cases.push_back(bad(
            std::move(what), [&](F &f) { f.keys[1].type = type, f.keys[1].value = value; }, "value 1",
            std::move(words)));
    };
    alignment("alignment 0", kU32, le<uint32_t>(0), {"alignment", "power of two"});
    alignment("alignment 1", kU32, le<uint32_t>(1), {"from 8"});
    alignment("alignment 48", kU32, le<uint32_t>(48), {"48", "power of two"});
    alignment("alignment 2^31", kU32, le<uint32_t>(1u << 31), {"to 1048576"});
    alignment("alignment 2^32-1", kU32, le<uint32_t>(0xffffffff), {"power of two"});
    alignment("alignment as a negative number", kI32, le<int32_t>(-32), {"type i32", "u32"});
    alignment("alignment as u64", kU64, le<uint64_t>(32), {"type u64", "u32"});
    cases.push_back(bad(
        "alignment as an array",
        [](F &f) { f.keys[1].type = kArray, f.keys[1].value = array(kU32, 1, le<uint32_t>(32)); }, "value 1",
        {"general.alignment", "array of u32"}, 12));
    alignment("alignment as string", kString, str("32"), {"type string", "u32"});
}

void add_tensor_cases(std::vector<Case> &cases) {
    using F = RawFile;
    auto tensor = [&](std::string what, const std::function<void(RawTensor &)> &change, const std::string &field,
                      std::vector<std::string> words, size_t delta = 0) {
        cases.push_back(bad(
            std::move(what), [&](F &f) { change(f.tensors[1]); }, "tensor 1 " + field, std::move(words), delta));
    };
    using T = RawTensor;
    tensor("tensor with an empty name", [](T &t) { t.name = ""; }, "name", {"tensor 1", "name", "empty"});
    tensor("tensor name with NUL", [](T &t) { t.name = std::string("b\0", 2); }, "name", {"tensor 1", "NUL"});
    tensor("tensor name that is not UTF-8", [](T &t) { t.name = "\xed\xa0\x80"; }, "name", {"tensor 1", "UTF-8"});
    tensor("tensor name length 2^64-1", [](T &t) { t.name_length = kHuge; }, "name", {"tensor 1", "length"});
    tensor("tensor name of 65,536 bytes", [](T &t) { t.name = std::string(65536, 'n'); }, "name",
           {"65536 bytes", "65535"});
    tensor("duplicate tensor", [](T &t) { t.name = "a.weight"; }, "name", {"'a.weight'", "duplicate", "tensor 0"});
    tensor("n_dims 0", [](T &t) { t.n_dims = 0; }, "n_dims", {"b.weight", "n_dims", "1 to 4"});
    tensor("n_dims 5", [](T &t) { t.n_dims = 5; }, "n_dims", {"n_dims", "5 dimensions"});
    tensor("n_dims 2^32-1", [](T &t) { t.n_dims = 0xffffffff; }, "n_dims", {"n_dims", "4294967295"});
    tensor(
        "dimension 0", [](T &t) { t.dims[2] = 0; }, "dims", {"dims", "dimension 2 is 0"}, 16);
    tensor("product of dimensions wraps to 0",
           [](T &t) {
               t.dims = {1ull << 32, 1ull << 32, 1, 1};
           },
           "dims", {"4294967296 x 4294967296", "overflow"});
    tensor("product of dimensions 2^63", [](T &t) { t.dims = {1ull << 62, 2}; }, "dims", {"overflow"});
    tensor("dimension -1", [](T &t) { t.dims = {kHuge}; }, "dims", {"18446744073709551615", "overflow"});
    tensor("bytes that wrap when padded", [](T &t) { t.dims = {(1ull << 61) - 1}; }, "offset",
           {"9223372036854775804 bytes", "beyond"});
    tensor("bytes wrap", [](T &t) { t.dims = {1ull << 62}, t.type = kTensorF64; }, "dims", {"overflow"});
    tensor("row no multiple of the block",
           [](T &t) {
               t.dims = {48, 2}, t.type = kTensorQ4_0;
           },
           "dims", {"48", "multiple", "32", "Q4_0"});
    tensor("row no multiple of the superblock",
           [](T &t) {
               t.dims = {128, 2}, t.type = kTensorQ4_K;
           },
           "dims", {"128", "256", "Q4_K"});
    for (auto [id, name] : std::vector<std::pair<uint32_t, std::string>>{
             {4, "Q4_2"}, {5, "Q4_3"}, {31, "Q4_0_4_4"}, {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}})
        tensor("removed type " + name, [&](T &t) { t.type = id; }, "type", {"type", name + ",", "removed", "Q4_K"});
    tensor("internal type Q8_1", [](T &t) { t.type = 9; }, "type", {"Q8_1", "intermediate"});
    tensor("type 2^32-1", [](T &t) { t.type = 0xffffffff; }, "type", {"type 4294967295", "unknown"});
    tensor("unknown type 1000", [](T &t) { t.type = 1000; }, "type", {"type 1000", "unknown", "Q4_K", "I32", "MXFP4"});
    tensor("offset no multiple of the alignment", [](T &t) { t.offset = 100; }, "offset",
           {"offset", "100", "alignment 32"});
    tensor("offset beyond the end", [](T &t) { t.offset = 1 << 20; }, "offset", {"offset", "beyond", "truncated"});
    tensor("offset wraps", [](T &t) { t.offset = kHuge - 31; }, "offset", {"offset", "beyond"});
    tensor("offset + bytes wraps", [](T &t) { t.offset = kHuge - 127; }, "offset", {"beyond"});
    tensor("tensor larger than the file", [](T &t) { t.dims = {1ull << 40}; }, "offset",
           {"4398046511104 bytes", "beyond"});
    cases.push_back(bad("sizes of tensors that wrap when added",
                        [](F &f) {
                            for (size_t i = 0; i < 3; i++)
                                f.tensors[i] = {fmt::format("t{}", i), {1ull << 60}, kTensorF32, i << 62, {}, {}};
                        },
                        "tensor 0 offset", {"'t0'", "4611686018427387904 bytes", "beyond"}));
    cases.push_back(bad(
        "tensors that overlap", [](F &f) { f.tensors[1].offset = 64; }, "data",
        {"b.weight", "overlaps", "tensor 0 'a.weight'"}, 64));
    cases.push_back(bad(
        "two tensors on the same bytes", [](F &f) { f.tensors[1].offset = 0; }, "data", {"overlaps tensor 0"}, 0));
    cases.push_back(
        bad("last byte missing", [](F &f) { f.data.pop_back(); }, "tensor 2 offset", {"c.weight", "truncated"}));
    cases.push_back(bad("data missing", [](F &f) { f.data.clear(); }, "tensor 0 offset", {"a.weight", "truncated"}));
    cases.push_back(bad("n_tensors one too many",
                        [](F &f) {
                            f.n_tensors = f.tensors.size() + 1;  // padding and data are read as a tensor
                            f.data.assign(f.data.size(), '\xff');
                            f.alignment = 1;
                        },
                        "data", {"tensor 3", "length"}));
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    add_header_cases(cases);
    add_key_cases(cases);
    add_tensor_cases(cases);
    return cases;
}

std::span<const std::byte> bytes_of(const std::string &s) { return std::as_bytes(std::span(s)); }

TEST(GgufHostile, TheTable) {
    const TempDir dir;
    const std::vector<Case> cases = all_cases();
    ASSERT_GE(cases.size(), 95u);
    for (const Case &c : cases) {
        SCOPED_TRACE(c.what);
        const auto path = dir.put("bad.gguf", c.bytes);
        start_allocation_meter();
        const std::string message = error_of([&] { File::open(path); });
        EXPECT_LE(peak_allocation(), 16384 + 16 * c.bytes.size());
        std::vector<std::string> words = c.words;
        words.push_back(path.string() + ": byte " + std::to_string(c.offset) + ": ");
        expect_words(message, words);
        EXPECT_LE(message.size(), path.string().size() + 700);
        report(c.what, message, dir.path());
        // Once more from the heap without a byte to spare, where a sanitizer sees reads past the end.
        const std::vector<std::byte> heap(bytes_of(c.bytes).begin(), bytes_of(c.bytes).end());
        EXPECT_EQ(error_of([&] { parse(heap, path.string()); }), message);
    }
}

TEST(GgufHostile, WhatIsNoFile) {
    const TempDir dir;
    auto check = [&](const std::string &what, const std::filesystem::path &path, std::vector<std::string> words) {
        SCOPED_TRACE(what);
        const std::string message = error_of([&] { File::open(path); });
        words.push_back(path.string());
        expect_words(message, words);
        report(what, message, dir.path());
    };
    std::filesystem::create_directory(dir / "folder");
    ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
    std::filesystem::create_symlink("loop", dir / "loop");
    check("no such file", dir / "absent.gguf", {"No such file", "check the path"});
    check("empty file", dir.put("empty.gguf", ""), {"empty", "0 bytes"});
    check("directory", dir / "folder", {"directory"});
    check("named pipe without a writer", dir / "pipe", {"regular file"});
    check("device", "/dev/zero", {"regular file"});
    check("symbolic link to itself", dir / "loop", {"cannot be opened"});

    const auto closed = dir.put("closed.gguf", valid_file().build().bytes);
    std::filesystem::permissions(closed, std::filesystem::perms::none);
    const bool root = geteuid() == 0;
    if (root && seteuid(65534) != 0) GTEST_SKIP() << "root, who may read everything and cannot become another user";
    std::filesystem::path opened = closed;
    const std::string message = error_of([&] { File::open(opened); });
    ASSERT_EQ(root ? seteuid(0) : 0, 0);
    expect_words(message, {"closed.gguf", "ermission"});
    report("file without read permission", message, dir.path());
}

TEST(GgufHostile, EveryTruncationThrows) {
    const TempDir dir;
    const std::string whole = valid_file().build().bytes;
    const auto path = dir.put("cut.gguf", whole);
    EXPECT_GT(touch(File::open(path).metadata(), File::open(path).tensors()), 0u);
    for (size_t n = whole.size(); n-- > 0;) {
        SCOPED_TRACE(n);
        const std::vector<std::byte> heap(bytes_of(whole).begin(), bytes_of(whole).begin() + static_cast<ptrdiff_t>(n));
        expect_words(error_of([&] { parse(heap, "cut.gguf"); }), {"cut.gguf", "byte "});
        std::filesystem::resize_file(path, n);
        expect_words(error_of([&] { File::open(path); }), {"cut.gguf"});
    }
}

// Opens or throws Error{file}; 0 where it threw.
uint64_t open_or_refuse(const std::vector<std::byte> &heap) {
    try {
        const Part part = parse(heap, "flipped.gguf");
        return 1 + touch(part.metadata, part.tensors);
    } catch (const Error &e) {
        EXPECT_EQ(e.kind(), ErrorKind::file);
        EXPECT_NE(std::string(e.what()).find("flipped.gguf: byte "), std::string::npos) << e.what();
        return 0;
    }
}

TEST(GgufHostile, EveryFlipOfTheHeaderOpensOrThrows) {
    const Built b = valid_file().build();
    std::vector<std::byte> heap(bytes_of(b.bytes).begin(), bytes_of(b.bytes).end());
    size_t opened = 0, refused = 0;
    for (size_t i = 0; i < b.at("data"); i++) {
        const std::byte old = heap[i];
        for (unsigned bit = 0; bit < 10; bit++) {
            heap[i] = bit < 8 ? old ^ std::byte(1u << bit) : bit == 8 ? std::byte{0xff} : std::byte{0};
            (open_or_refuse(heap) != 0 ? opened : refused)++;
        }
        heap[i] = old;
    }
    EXPECT_GT(opened, 100u);    // letters of names, numbers of metadata
    EXPECT_GT(refused, 1000u);  // everything that carries structure
}

TEST(GgufHostile, RandomDamageOpensOrThrows) {
    const std::string whole = valid_file().build().bytes;
    EXPECT_TRUE(rc::check("random damage", [&] {
        for (int round = 0; round < 20; round++) {
            std::vector<std::byte> heap(bytes_of(whole).begin(), bytes_of(whole).end());
            const int edits = *rc::gen::inRange(1, 6);
            for (int i = 0; i < edits; i++) {
                const size_t at = *rc::gen::inRange<size_t>(0, heap.size() - 8);
                const auto v = *rc::gen::oneOf(rc::gen::arbitrary<uint64_t>(),
                                               rc::gen::element<uint64_t>(0, 1, 2, 8, 9, 255, kHuge, kHuge - 7,
                                                                          1ull << 31, 1ull << 32, 1ull << 63));
                std::memcpy(&heap[at], &v, *rc::gen::element<size_t>(1, 4, 8));
            }
            heap.resize(heap.size() - *rc::gen::inRange<size_t>(0, 3) * 16);
            open_or_refuse(heap);
        }
    }));
}

}  // namespace
}  // namespace ridge::gguf::test
