// granite: Granite 3. As llama, with factors on embeddings, residual branches, scores and (dividing) logits.
#include "model/builder.h"

namespace ridge {

void build_granite(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        const ValueId attn = b.attend(b.qkv(in), RopePairs::adjacent);
        x = b.add_branch(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        x = b.add_branch(x, b.feed_forward(ffn_in, h.n_ff), "residual");
    }
    b.output(x);
}

}  // namespace ridge
