// olmo2: OLMo 2 and 3. Norms stand behind attention and feed-forward, not before them; q and k are normalised whole.
// OLMo 3: three layers of four see a window, and only the others stretch their positions.
#include "model/builder.h"

namespace ridge {

void build_olmo2(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        Builder::Qkv qkv = b.qkv(x);
        qkv.q = b.rmsnorm(qkv.q, "attn_q_norm");
        qkv.k = b.rmsnorm(qkv.k, "attn_k_norm");
        const ValueId attn = b.attend(qkv, RopePairs::halves);
        const ValueId attn_out = b.contract(attn, "attn_output", h.n_embd);
        x = b.add(x, b.rmsnorm(attn_out, "post_attention_norm"), "attn_residual");

        const ValueId down = b.feed_forward(x, h.n_ff);
        x = b.add(x, b.rmsnorm(down, "post_ffw_norm"), "residual");
    }
    b.output(x);
}

}  // namespace ridge
