// Code compiled for a wider instruction set must be reachable through its rows only: a weak symbol that such an object
// leaves outside its own namespace may be the copy that the linker keeps for everybody, who then dies of SIGILL.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>

namespace ridge {
namespace {

TEST(IsaObjects, LeaveNoCodeForOthers) {
#if defined(__x86_64__)
    constexpr std::array kSets = {"avx2", "avxvnni", "avx512", "avx512vbmi", "avx512bf16"};
#elif defined(__aarch64__)
    constexpr std::array kSets = {"neon", "dotprod", "i8mm"};
#else
    constexpr std::array<const char *, 0> kSets = {};
    GTEST_SKIP() << "no such objects on this machine";
#endif
    // Archive members with their symbols: "archive:member:address type name".
    const std::string command = std::string("nm -AC --defined-only ") + RIDGE_ENGINE_ARCHIVE + " 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE *)> out(popen(command.c_str(), "r"), pclose);
    ASSERT_NE(out, nullptr);
    std::array<char, 8192> line{};
    size_t members = 0;
    while (std::fgets(line.data(), line.size(), out.get())) {
        const std::string s = line.data();
        for (const std::string set : kSets) {
            if (s.find("_" + set + ".cpp.o:") == std::string::npos) continue;
            members++;
            const bool weak_code = s.find(" W ") != std::string::npos || s.find(" u ") != std::string::npos;
            const bool own = s.find("::" + set + "::") != std::string::npos;
            EXPECT_TRUE(!weak_code || own) << s;
        }
    }
    EXPECT_GT(members, 0U) << "nm named no object of an instruction set";
}

}  // namespace
}  // namespace ridge
