// llama: Llama 1 to 3, Mistral (windows), Mixtral (experts), SmolLM2, and others in their shape; and mistral3, whose
// queries grow with their position. GGUF files hold q and k
// with their rows permuted so that adjacent elements turn together. Biases are optional. Llama 3 brings
// rope_freqs.weight.
#include "model/builder.h"

namespace ridge {

void build_llama(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        const ValueId attn = b.attend(b.qkv(in), RopePairs::adjacent);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        if (h.n_experts > 0) {
            x = b.add(x, b.experts(ffn_in), "residual");
            continue;
        }
        x = b.add(x, b.feed_forward(ffn_in, h.n_ff), "residual");
    }
    b.output(x);
}

}  // namespace ridge
