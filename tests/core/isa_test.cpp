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
#if !defined(__x86_64__)
    GTEST_SKIP() << "no such objects on this machine";
#else
    // Archive members with their symbols: "archive:member:address type name".
    const std::string command = std::string("nm -AC --defined-only ") + RIDGE_ENGINE_ARCHIVE + " 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE *)> out(popen(command.c_str(), "r"), pclose);
    ASSERT_NE(out, nullptr);
    std::array<char, 8192> line{};
    size_t members = 0;
    while (std::fgets(line.data(), line.size(), out.get())) {
        const std::string s = line.data();
        const bool avx2 = s.find("_avx2.cpp.o:") != std::string::npos,
                   avx512 = s.find("_avx512.cpp.o:") != std::string::npos;
        if (!avx2 && !avx512) continue;
        members++;
        const bool weak_code = s.find(" W ") != std::string::npos || s.find(" u ") != std::string::npos;
        const bool own = s.find(avx2 ? "::avx2::" : "::avx512::") != std::string::npos;
        EXPECT_TRUE(!weak_code || own) << s;
    }
    EXPECT_GT(members, 0U) << "nm named no object of an instruction set";
#endif
}

}  // namespace
}  // namespace ridge
