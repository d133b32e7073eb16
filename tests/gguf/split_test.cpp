// Split sets: whole ones open from any part; sets that lie, lack a part or point back at themselves are refused.
#include <gtest/gtest.h>

#include "support.h"

namespace ridge::gguf::test {
namespace {

RawKey u16_key(const std::string &key, uint16_t v) { return {key, kU16, le(v), {}}; }

// Part `number` (from 0) of a set with one tensor of 32 floats per part.
RawFile part_of(uint16_t number, uint16_t count = 3, int32_t tensors = 3) {
    RawFile f;
    f.keys = {
        u16_key("split.no", number), u16_key("split.count", count), {"split.tensors.count", kI32, le(tensors), {}}};
    if (number == 0) f.keys.push_back({"general.architecture", kString, str("llama"), {}});
    f.tensors = {{fmt::format("t{}", number), {32}, kTensorF32, 0, {}, {}}};
    f.data = std::string(128, static_cast<char>('a' + number));
    return f;
}

std::string name_of(int number, int count = 3) { return fmt::format("m-{:05}-of-{:05}.gguf", number + 1, count); }

struct Set {
    TempDir dir;
    std::vector<RawFile> parts{part_of(0), part_of(1), part_of(2)};
    void write() {
        for (size_t i = 0; i < parts.size(); i++) dir.put(name_of(static_cast<int>(i)), parts[i].build().bytes);
    }
    std::filesystem::path operator[](int i) const { return dir / name_of(i); }
};

TEST(GgufSplit, OpensFromAnyPart) {
    Set s;
    s.parts[2].alignment = 64;
    s.parts[2].keys.push_back({"general.alignment", kU32, le<uint32_t>(64), {}});
    s.write();
    for (int named = 0; named < 3; named++) {
        const File f = File::open(s[named]);
        ASSERT_EQ(f.paths().size(), 3u);
        EXPECT_EQ(f.paths()[2].filename(), name_of(2));
        ASSERT_EQ(f.tensors().size(), 3u);
        EXPECT_EQ(f.get_string("general.architecture"), "llama");
        for (uint32_t i = 0; i < 3; i++) {
            const Tensor *t = f.find_tensor(fmt::format("t{}", i));
            ASSERT_NE(t, nullptr);
            EXPECT_EQ(t->file, i);
            EXPECT_EQ(std::to_integer<char>(t->data[127]), static_cast<char>('a' + i));
        }
        uint64_t last = 0;
        f.prefetch([&](uint64_t done, uint64_t total) {
            EXPECT_EQ(total, 3 * 128u);
            last = done;
            return true;
        });
        EXPECT_EQ(last, 3 * 128u);
    }
}

TEST(GgufSplit, FirstPartWithoutTensors) {
    Set s;
    s.parts[0].tensors.clear();
    s.parts[0].data.clear();
    for (RawFile &p : s.parts) p.keys[2].value = le<int32_t>(2);
    s.write();
    EXPECT_EQ(File::open(s[1]).tensors().size(), 2u);
}

TEST(GgufSplit, AMergedFileSaysCountZero) {
    const TempDir dir;
    EXPECT_EQ(File::open(dir.put("merged.gguf", part_of(0, 0, 3).build().bytes)).tensors().size(), 1u);
    EXPECT_EQ(File::open(dir.put("m-00001-of-00001.gguf", part_of(0, 1, 1).build().bytes)).tensors().size(), 1u);
}

void expect_refused(const std::string &what, const Set &s, const std::filesystem::path &path,
                    const std::vector<std::string> &words) {
    SCOPED_TRACE(what);
    const std::string message = error_of([&] { File::open(path); });
    expect_words(message, words);
    report("split set: " + what, message, s.dir.path());
}

TEST(GgufSplit, Refused) {
    auto check = [](const std::string &what, const std::function<void(Set &)> &change, std::vector<std::string> words,
                    int named = 0) {
        Set s;
        change(s);
        s.write();
        expect_refused(what, s, s[named], words);
    };
    auto number = [](int part, int key, uint16_t v) {
        return [=](Set &s) { s.parts[static_cast<size_t>(part)].keys[static_cast<size_t>(key)].value = le(v); };
    };
    check("part says another number", number(1, 0, 2), {name_of(1), "split.no", "says 2", "says 1"});
    check("first part says it is the second", number(0, 0, 1), {name_of(0), "split.no"});
    check("part says another count", number(2, 1, 4), {name_of(2), "split.count", "4 parts", "first part says 3"});
    check("count differs from the name", number(0, 1, 2), {name_of(0), "split.count", "2 parts", "name says 3"}, 2);
    check("named as a part, says it is none", number(0, 1, 0), {name_of(0), "split.count", "not split"});
    check("count is text",
          [](Set &s) {
              s.parts[0].keys[1] = {"split.count", kString, str("3"), {}};
          },
          {name_of(0), "byte", "split.count", "\"3\"", "string"});
    check("count is negative",
          [](Set &s) {
              s.parts[0].keys[1] = {"split.count", kI32, le<int32_t>(-3), {}};
          },
          {"split.count", "-3"});
    check("number is missing", [](Set &s) { s.parts[1].keys.erase(s.parts[1].keys.begin()); },
          {name_of(1), "split.no", "missing"});
    check("number of tensors is missing", [](Set &s) { s.parts[0].keys.erase(s.parts[0].keys.begin() + 2); },
          {name_of(0), "split.tensors.count", "missing"});
    check("number of tensors is wrong",
          [](Set &s) {
              for (RawFile &p : s.parts) p.keys[2].value = le<int32_t>(4);
          },
          {name_of(0), "split.tensors.count", "says 4", "hold 3"});
    check("a part of another set", [](Set &s) { s.parts[1].keys[2].value = le<int32_t>(5); },
          {name_of(1), "split.tensors.count", "says 5", "first part says 3", "another set"});
    check("a part without tensors", [](Set &s) { s.parts[1].tensors.clear(), s.parts[1].data.clear(); },
          {name_of(0), "split.tensors.count", "says 3", "hold 2"});
    check("a tensor in two parts", [](Set &s) { s.parts[2].tensors[0].name = "t0"; },
          {name_of(2), "byte", "'t0'", "duplicate", name_of(0)});
    check("a damaged part", [](Set &s) { s.parts[1].data.pop_back(); }, {name_of(1), "'t1'", "offset", "truncated"});
}

TEST(GgufSplit, RefusedByTheNamesOfFiles) {
    Set s;
    s.write();
    std::filesystem::remove(s[1]);
    expect_refused("second part missing", s, s[0], {name_of(1), "missing", "part 2 of the 3"});
    std::filesystem::create_symlink(name_of(0), s[1]);
    expect_refused("second part is a link to the first", s, s[0], {name_of(1), "split.no", "says 0"});
    std::filesystem::remove(s[0]);
    expect_refused("first part missing, another named", s, s[2], {name_of(0), "missing", "part 1 of the 3"});
    std::filesystem::remove(s[1]);
    std::filesystem::create_symlink(name_of(1), s[0]);
    std::filesystem::create_symlink(name_of(0), s[1]);
    expect_refused("links in a circle", s, s[2], {name_of(0), "cannot be opened"});

    const auto renamed = s.dir.put("model.gguf", part_of(0).build().bytes);
    expect_refused("part under another name", s, renamed, {"model.gguf", "split.count", "-00001-of-00003.gguf"});
    const auto zero = s.dir.put("m-00000-of-00003.gguf", part_of(0).build().bytes);
    expect_refused("part 0", s, zero, {"m-00000-of-00003.gguf", "from 1"});
    const auto beyond = s.dir.put("m-00004-of-00003.gguf", part_of(0).build().bytes);
    expect_refused("part beyond the count", s, beyond, {"part 4 of 3"});
    const auto many = s.dir.put("m-00001-of-65535.gguf", part_of(0, 65535).build().bytes);
    expect_refused("65,535 parts declared, one there", s, many, {"m-00002-of-65535.gguf", "missing"});
}

}  // namespace
}  // namespace ridge::gguf::test
