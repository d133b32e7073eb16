// The text of the error that `f` must throw.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.h"

namespace ridge::test {

inline std::string error_of(ErrorKind kind, const std::function<void()> &f) {
    try {
        f();
    } catch (const Error &e) {
        EXPECT_EQ(e.kind(), kind) << e.what();
        return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
}

}  // namespace ridge::test
