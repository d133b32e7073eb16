// The oracle's forward pass on files that miss or bend something. Its logits are held to other code's in tests/model.
#include "oracle/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/tiny_file.h"
#include "support/errors.h"

namespace ridge::oracle {
namespace {

using ridge::test::Edit;
using ridge::test::error_of;
using ridge::test::TempFile;
using ridge::test::TinyModel;

const std::vector<int32_t> kTokens = {7, 1, 30, 254, 100, 5, 299, 77, 12, 13, 14, 200};

Logits run(const gguf::File &base, const Edit &edit, std::vector<int32_t> tokens = kTokens) {
    const TempFile temp("forward.gguf");
    write_edited(base, edit, temp.path());
    const gguf::File file = gguf::File::open(temp.path());
    return Model(file).forward(tokens);
}

Edit window(uint32_t n) {
    return {.without = {},
            .keys = {{"llama.attention.sliding_window",
                      [n](gguf::Writer &w) { w.add_u32("llama.attention.sliding_window", n); }}},
            .tensors = {}};
}

bool same_row(const Logits &a, const Logits &b, size_t position) {
    return std::equal(a.at(position).begin(), a.at(position).end(), b.at(position).begin());
}

// Three layers of window 3 carry what is known of a token at most six positions on.
TEST(OracleForward, WindowsBoundHowFarATokenIsSeen) {
    const TinyModel model({.like = "tiny-llama", .quant = "F32"});
    std::vector<int32_t> other = kTokens;
    other[2] = 42;
    const Logits a = run(model.file, window(3)), b = run(model.file, window(3), other);
    for (size_t i = 0; i < kTokens.size(); i++) EXPECT_EQ(same_row(a, b, i), i < 2 || i > 8) << "position " << i;
}

TEST(OracleForward, AWindowOverEverythingIsNone) {
    const TinyModel model({.like = "tiny-llama", .quant = "F32"});
    const Logits plain = Model(model.file).forward(kTokens);
    EXPECT_EQ(run(model.file, window(12)).values, plain.values);
    EXPECT_EQ(run(model.file, window(0)).values, plain.values);
    const Logits narrow = run(model.file, window(11));
    for (size_t i = 0; i < kTokens.size(); i++) EXPECT_EQ(same_row(narrow, plain, i), i < 11) << "position " << i;
}

TEST(OracleForward, NamesTensorsThatAreMissingOrDoNotFit) {
    const TinyModel model({.like = "tiny-llama", .quant = "F32"});
    for (const char *name :
         {"blk.1.ffn_down.weight", "blk.0.attn_q.weight", "blk.2.ffn_norm.weight", "output_norm.weight"}) {
        const std::string text = error_of(ErrorKind::file, [&] { run(model.file, {{name}, {}, {}}); });
        EXPECT_NE(text.find(name), std::string::npos) << text;
    }
    const auto misshapen = [&](const std::string &name, std::vector<uint64_t> shape) {
        const Edit edit{{}, {}, {{name, {Format::F32, shape}}}};
        return error_of(ErrorKind::file, [&] { run(model.file, edit); });
    };
    for (const auto &[name, shape] :
         std::vector<std::pair<std::string, std::vector<uint64_t>>>{{"token_embd.weight", {128, 300}},
                                                                    {"blk.1.attn_q.weight", {96, 256}},
                                                                    {"blk.1.attn_q.bias", {255}},
                                                                    {"blk.1.attn_qkv.weight", {256, 300}},
                                                                    {"blk.1.attn_norm.weight", {7}},
                                                                    {"blk.1.attn_sinks.weight", {3}},
                                                                    {"blk.1.ffn_gate.weight", {256, 480}},
                                                                    {"blk.1.ffn_down.weight", {500, 256}},
                                                                    {"blk.1.ffn_down.weight", {512, 128}},
                                                                    {"blk.1.attn_k.weight", {256, 64}},
                                                                    {"rope_freqs.weight", {31}}}) {
        const std::string text = misshapen(name, shape);
        EXPECT_NE(text.find(name.substr(0, name.rfind('.'))), std::string::npos) << text;
    }
}

}  // namespace
}  // namespace ridge::oracle
