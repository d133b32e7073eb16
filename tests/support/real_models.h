// The small real models that tests run: $RIDGE_MODELS or ~/.cache/ridge, where run.sh and test.sh put them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace ridge::test {

inline constexpr const char *kSmolLm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
inline constexpr const char *kQwen25 = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf";
inline constexpr const char *kGemma3 = "gemma-3-270m-q4_k_m.gguf";

// Empty where it is not there.
inline std::filesystem::path real_model(const std::string &file) {
    const char *models = std::getenv("RIDGE_MODELS"), *home = std::getenv("HOME");
    const std::filesystem::path folder =
        models ? std::filesystem::path(models) : std::filesystem::path(home ? home : ".") / ".cache/ridge";
    return std::filesystem::exists(folder / file) ? folder / file : std::filesystem::path();
}

// Where the environment says so, a missing model must not pass for a test.
inline bool models_required() { return std::getenv("CI") != nullptr || std::getenv("RIDGE_REQUIRE_MODELS") != nullptr; }

}  // namespace ridge::test

// Skips a test, or fails it, where `path` (of real_model) is empty.
#define RIDGE_NEEDS_MODEL(path)                                                           \
    do {                                                                                  \
        if ((path).empty()) {                                                             \
            if (ridge::test::models_required()) FAIL() << "a small real model is absent"; \
            GTEST_SKIP() << "a small real model is absent; ./test.sh fetches it";         \
        }                                                                                 \
    } while (false)
