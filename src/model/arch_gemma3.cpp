// gemma3: Gemma 3, text. Norms before and after attention and feed-forward (a stored weight is 1 + w), heads of q and k
// normalised, gelu. Five layers of six see a window, and turn positions by a base of their own. Embeddings are scaled
// by sqrt(n_embd).
#include "model/builder.h"

namespace ridge {

void build_gemma3(Builder &b) {
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
        const ValueId attn_out = b.contract(attn, "attn_output", h.n_embd);
        x = b.add(x, b.rmsnorm(attn_out, "post_attention_norm"), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        const ValueId down = b.feed_forward(ffn_in, h.n_ff, GluKind::gelu);
        x = b.add(x, b.rmsnorm(down, "post_ffw_norm"), "residual");
    }
    b.output(x);
}

}  // namespace ridge
