// qwen3: dense Qwen3. Every head of q and k is normalised before it turns; heads * head_dim need not be n_embd.
#include "model/builder.h"

namespace ridge {

void build_qwen3(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        Builder::Qkv qkv = b.qkv(in);
        qkv.q = b.rmsnorm_heads(qkv.q, "attn_q_norm", h.head_dim);
        qkv.k = b.rmsnorm_heads(qkv.k, "attn_k_norm", h.head_dim);
        const ValueId attn = b.attend(qkv, RopePairs::halves);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        x = b.add(x, b.feed_forward(ffn_in, h.n_ff), "residual");
    }
    b.output(x);
}

}  // namespace ridge
