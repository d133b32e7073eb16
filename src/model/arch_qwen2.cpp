// qwen2: Qwen2 and Qwen2.5. As llama, with biases on q, k and v, and elements j and j + n_rot/2 turning together.
#include "model/builder.h"

namespace ridge {

void build_qwen2(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        const ValueId attn = b.attend(b.qkv(in, Builder::Bias::required), RopePairs::halves);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        x = b.add(x, b.feed_forward(ffn_in, h.n_ff), "residual");
    }
    b.output(x);
}

}  // namespace ridge
