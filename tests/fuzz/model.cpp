// From a file to a program and a tokenizer: hyper-parameters, checks of tensors, vocabulary. The input is a GGUF file
// as support/describe_gguf.h writes it: whole in its structure, so that what is fuzzed is what its keys and tensors
// say.
//
// What is accepted must be fit to run: sizes that multiply without wrapping, weights that are tensors of the file,
// finite rotary frequencies, a bounded number of operations, a vocabulary of the size that the logits have.
#include <cmath>
#include <variant>

#include "fuzz/support.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "support/describe_gguf.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace {

using namespace ridge;

// A weight is a tensor, or some of its rows: "blk.0.attn_qkv.weight[0:8]".
void check_weights(const gguf::File &file, const Program &p) {
    for (const Weight &w : p.weights) {
        const gguf::Tensor *t = file.find_tensor(std::string_view(w.name).substr(0, w.name.find('[')));
        FUZZ_REQUIRE(t != nullptr, "weight {} is no tensor", w.name);
        FUZZ_REQUIRE(w.n > 0 && w.k > 0 && w.experts > 0, "weight {}", w.name);
        FUZZ_REQUIRE(w.data >= t->data && w.bytes() <= t->bytes, "weight {}: {} bytes of {}", w.name, w.bytes(),
                     t->bytes);
        FUZZ_REQUIRE(static_cast<size_t>(w.data - t->data) <= t->bytes - w.bytes(), "weight {} lies outside", w.name);
    }
}

void check_table(const RopeTable &table) {
    for (const std::vector<double> *list : {&table.frequency, &table.long_frequency})
        for (const double f : *list) FUZZ_REQUIRE(std::isfinite(f) && f > 0, "a frequency of {}", f);
    FUZZ_REQUIRE(std::isfinite(table.magnitude) && table.magnitude > 0, "a magnitude of {}", table.magnitude);
    FUZZ_REQUIRE(std::isfinite(table.temperature) && table.temperature >= 0, "a temperature of {}", table.temperature);
}

// Several tables may stand in a program: layers that turn by other frequencies.
void check_frequencies(const Program &p) {
    for (const Node &node : p.nodes)
        if (const auto *table = std::get_if<RopeTable>(&node.op))
            check_table(*table);
}

void check_hparams(const Hparams &h) {
    FUZZ_REQUIRE(h.n_layers >= 1 && h.n_embd >= 1 && h.n_vocab >= 1 && h.context_length >= 1, "sizes");
    FUZZ_REQUIRE(h.n_heads >= 1 && h.n_kv_heads >= 1 && h.n_heads % h.n_kv_heads == 0, "heads");
    FUZZ_REQUIRE(h.head_dim >= 2 && uint64_t{h.n_heads} * h.head_dim < (1u << 31), "head_dim {}", h.head_dim);
    FUZZ_REQUIRE(h.n_rot >= 2 && h.n_rot <= h.head_dim && h.n_rot % 2 == 0, "n_rot {}", h.n_rot);
    FUZZ_REQUIRE(h.n_experts_used <= h.n_experts, "experts");
    FUZZ_REQUIRE(h.rms_eps > 0 && std::isfinite(h.rms_eps) && static_cast<float>(h.rms_eps) > 0, "eps {}", h.rms_eps);
    for (const double x : {h.attention_scale, h.embedding_scale, h.residual_scale, h.logit_scale, 1 / h.logit_scale})
        FUZZ_REQUIRE(std::isfinite(static_cast<float>(x)) && static_cast<float>(x) > 0, "a scale of {}", x);
    for (const double x : {h.attention_softcap, h.logit_softcap})
        FUZZ_REQUIRE(x == 0 || (std::isfinite(x) && static_cast<float>(x) > 0), "a cap of {}", x);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fuzz::Stopwatch stopwatch;
    const test::Described described = test::describe_gguf({reinterpret_cast<const char *>(data), size});
    const fuzz::MemoryFile memory(std::as_bytes(std::span(described.bytes)), described.size);
    fuzz::start_allocation_meter();
    fuzz::refusal_of([&] {
        const gguf::File file = gguf::File::open(memory.path());
        fuzz::refusal_of([&] { check_hparams(read_hparams(file)); });
        fuzz::refusal_of([&] {
            const Hparams h = read_hparams(file);
            const Program p = build_program(file);
            check_weights(file, p);
            check_frequencies(p);
            FUZZ_REQUIRE(p.nodes.size() <= 64 + uint64_t{64} * h.n_layers, "{} operations", p.nodes.size());
            FUZZ_REQUIRE(p.value(p.logits).cols == h.n_vocab, "logits");
            FUZZ_REQUIRE(to_string(p) == to_string(build_program(file)), "two programs from one file");
            FUZZ_REQUIRE(unused_tensors(file, p).size() <= file.tensors().size(), "unused tensors");
        });
        fuzz::refusal_of([&] {
            const auto tokenizer = text::Tokenizer::from(text::vocabulary_from_gguf(file));
            FUZZ_REQUIRE(static_cast<uint64_t>(tokenizer->size()) == file.find("tokenizer.ggml.tokens")->count, "size");
            for (const auto id : {tokenizer->bos(), tokenizer->eos()})
                FUZZ_REQUIRE(!id || (*id >= 0 && *id < tokenizer->size()), "id {}", *id);
            tokenizer->decode(tokenizer->encode("a b\n1", {.add_special = true, .parse_special = true}), true);
        });
    });
    // The header, names of tensors and values for each layer of the program: no more than a file of that many tensors
    // justifies. A vocabulary's tables are the largest part.
    FUZZ_REQUIRE(fuzz::peak_allocation() <= (4u << 20) + 256 * size, "{} bytes of heap for {} of text",
                 fuzz::peak_allocation(), size);
    return 0;
}
