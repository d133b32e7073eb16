// ridge report: a page from a real run, and refusals before anything long is done.

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/support.h"

namespace ridge::test {
namespace {

namespace fs = std::filesystem;

class ReportCommand : public InOwnFolder {
  protected:
    Result report(const std::vector<std::string> &more) {
        std::vector<std::string> args = {
            "report", "-m", tiny_chat_model().string(), "-t", "1", "-p", "32", "-n", "4", "-d", "0", "--force"};
        args.insert(args.end(), more.begin(), more.end());
        return run(args);
    }
    std::string text(const fs::path &path) {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), {}};
    }
};

TEST_F(ReportCommand, WritesAPage) {
    const fs::path page = folder_ / "r.html", ab = folder_ / "ab.json";
    std::ofstream(ab)
        << R"({"machine": "m", "device": "d", "date": "2026-11-30", "command": "ridge ab", "model": "x.gguf",
        "architecture": "llama", "results": []})";
    const Result r = report({"-o", page.string(), "--ab", ab.string()});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.out, page.string() + "\n");
    const std::string s = text(page);
    for (const char *words : {"<!doctype html>", "prefill pp32", "decode tg4", "Roofline",
                              "Bandwidth by size of a launch", "ridge report -m", "</html>"})
        EXPECT_NE(s.find(words), std::string::npos) << words;
}

TEST_F(ReportCommand, RefusesWhatItCannotReadOrWrite) {
    const Result where = report({"-o", (folder_ / "no" / "r.html").string()});
    EXPECT_EQ(where.code, 3);
    EXPECT_NE(where.err.find("cannot be written"), std::string::npos) << where.err;
    const fs::path odd = folder_ / "odd.json";
    std::ofstream(odd) << "{]";
    const Result what = report({"-o", (folder_ / "r.html").string(), "--ab", odd.string()});
    EXPECT_EQ(what.code, 3);
    EXPECT_NE(what.err.find("odd.json"), std::string::npos) << what.err;
    EXPECT_FALSE(fs::exists(folder_ / "r.html")) << "an empty page is left";
    EXPECT_EQ(report({"-o", (folder_ / "r.html").string(), "--ab", "/no/such.json"}).code, 3);
}

}  // namespace
}  // namespace ridge::test
