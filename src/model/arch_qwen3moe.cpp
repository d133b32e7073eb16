// qwen3moe: Qwen3 with experts. Attention as in qwen3; every layer's feed-forward is the weighted sum of a few experts:
// softmax over all of them, the n_experts_used most probable, their probabilities scaled to sum 1.
#include "model/builder.h"

namespace ridge {

void build_qwen3moe(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        const ValueId q = b.contract(in, "attn_q", h.n_heads * h.head_dim);
        const ValueId k = b.contract(in, "attn_k", h.n_kv_heads * h.head_dim);
        const ValueId v = b.contract(in, "attn_v", h.n_kv_heads * h.head_dim);
        const ValueId q_turned = b.rope_query(b.rmsnorm_heads(q, "attn_q_norm", h.head_dim), RopePairs::halves);
        const ValueId k_turned = b.rope_key(b.rmsnorm_heads(k, "attn_k_norm", h.head_dim), RopePairs::halves);
        const Builder::KvStates kv = b.kv_write(k_turned, v);
        const ValueId attn = b.attention(q_turned, kv);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        x = b.add(x, b.experts(ffn_in), "residual");
    }
    b.begin_output();
    x = b.gather_outputs(x);
    b.logits(b.rmsnorm(x, "output_norm"));
}

}  // namespace ridge
