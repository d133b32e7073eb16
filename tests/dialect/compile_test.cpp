// The format headers compile in every language of the dialect. cover.cu and cover.comp call each function of each
// header, expanded from formats.def; the compilers are run on them here.
//
// A test without its compiler is skipped. Where CI or RIDGE_REQUIRE_TOOLS is set it fails instead, except for nvcc,
// which no package of Debian's main archive brings.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

struct Compiler {
    std::string language;  // names the test
    std::string tool, flags, source;
    std::string package;  // brings the tool
    bool expected;        // to be there where tools are required
};

void PrintTo(const Compiler &c, std::ostream *out) { *out << c.tool; }

const Compiler kCompilers[] = {
    {"CxxGcc", "g++", "-std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Werror -x c++", "cover.cu", "g++", true},
    {"CxxClang", "clang++-19", "-std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Werror -x c++", "cover.cu", "clang-19",
     true},
    {"Cuda", "nvcc", "-std=c++20 -arch=sm_90 -ptx -Werror all-warnings", "cover.cu", "the CUDA toolkit", false},
    {"Hip", "clang++-19",
     "-std=c++20 -x hip --offload-arch=gfx1151 --cuda-device-only -nogpulib -nogpuinc -O3 -S -Wall -Wextra -Werror",
     "cover.cu", "clang-19", true},
    {"Glsl", "glslc", "--target-env=vulkan1.1 -O -Werror", "cover.comp", "glslc", true},
    {"GlslOwnSrc", "glslc", "--target-env=vulkan1.1 -O -Werror -DPLANES", "cover.comp", "glslc", true},
};

std::string quoted(const fs::path &path) { return "'" + path.string() + "'"; }

std::string read(const fs::path &path) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

struct Result {
    bool ok;
    std::string log;
};

class Tools : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "ridge_dialect_XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr) << pattern;
        folder_ = pattern;
    }
    void TearDown() override { fs::remove_all(folder_); }

    Result run(const std::string &command) {
        const fs::path log = folder_ / "log";
        const int rc = std::system(fmt::format("({}) >{} 2>&1 </dev/null", command, quoted(log)).c_str());
        return {rc == 0, command + "\n" + read(log)};
    }

    // How to call `tool`, or an empty string.
    std::string find(const std::string &tool) {
        if (run("command -v " + tool).ok) return tool;
        const fs::path usual = "/usr/local/cuda/bin/" + tool;  // the toolkit does not put itself on the path
        return fs::exists(usual) ? usual.string() : "";
    }

    Result compile(const std::string &tool, const Compiler &c, const std::string &more) {
        const fs::path root = RIDGE_SOURCE_DIR;
        return run(fmt::format("{} {} {} -I{} {} -o {}", tool, c.flags, more, quoted(root / "src"),
                               quoted(root / "tests/dialect" / c.source), quoted(out())));
    }

    fs::path out() const { return folder_ / "out"; }

  private:
    fs::path folder_;
};

// Leaves the test where the tool is missing.
#define REQUIRE_TOOL(path, tool, package, expected)                                            \
    if (path.empty() && expected && (std::getenv("CI") || std::getenv("RIDGE_REQUIRE_TOOLS"))) \
        FAIL() << tool << " is missing; it comes with " << package;                            \
    if (path.empty()) GTEST_SKIP() << tool << " is missing; it comes with " << package

class Compile : public Tools, public ::testing::WithParamInterface<Compiler> {};

TEST_P(Compile, CoversEveryFunction) {
    const Compiler &c = GetParam();
    const std::string tool = find(c.tool);
    REQUIRE_TOOL(tool, c.tool, c.package, c.expected);
    const Result good = compile(tool, c, "");
    EXPECT_TRUE(good.ok) << good.log;
    // Refused because of the one function that does not exist.
    const Result planted = compile(tool, c, "-DPLANT");
    EXPECT_FALSE(planted.ok) << planted.log;
    EXPECT_NE(planted.log.find("q4_K_no_such_function"), std::string::npos) << planted.log;
}

INSTANTIATE_TEST_SUITE_P(Dialect, Compile, ::testing::ValuesIn(kCompilers),
                         [](const auto &row) { return row.param.language; });

// MSL is reached from SPIR-V alone.
TEST_F(Tools, CrossCompileSpirvToMsl) {
    const std::string glslc = find("glslc"), cross = find("spirv-cross");
    REQUIRE_TOOL(glslc, "glslc", "glslc", true);
    REQUIRE_TOOL(cross, "spirv-cross", "spirv-cross", true);
    int shaders = 0;
    for (const Compiler &c : kCompilers) {
        if (c.tool != "glslc") continue;
        const Result spirv = compile(glslc, c, "");
        ASSERT_TRUE(spirv.ok) << spirv.log;
        const Result msl = run(cross + " --msl " + quoted(out()));
        EXPECT_TRUE(msl.ok) << msl.log;
        EXPECT_NE(msl.log.find("kernel void main0("), std::string::npos) << msl.log;
        ++shaders;
    }
    EXPECT_EQ(shaders, 2);
}

}  // namespace
