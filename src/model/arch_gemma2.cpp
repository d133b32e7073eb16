// gemma2: Gemma 2. As gemma3 without norms of q and k; every other layer sees a window; scores and logits are
// soft-capped.
#include "model/builder.h"

namespace ridge {

void build_gemma2(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        const ValueId attn = b.attend(b.qkv(in), RopePairs::halves);
        const ValueId attn_out = b.contract(attn, "attn_output", h.n_embd);
        x = b.add(x, b.rmsnorm(attn_out, "post_attention_norm"), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        const ValueId down = b.feed_forward(ffn_in, h.n_ff, GluKind::gelu);
        x = b.add(x, b.rmsnorm(down, "post_ffw_norm"), "residual");
    }
    b.output(x);
}

}  // namespace ridge
