// gpt-oss: biases everywhere, a sink in every head's softmax, every other layer with a window, YaRN. Experts with a
// clamped gated unit, weighted by the softmax over the logits of the chosen.
#include "model/builder.h"

namespace ridge {

void build_gpt_oss(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        const ValueId q = b.contract(in, "attn_q", h.n_heads * h.head_dim, Builder::Bias::required);
        const ValueId k = b.contract(in, "attn_k", h.n_kv_heads * h.head_dim, Builder::Bias::required);
        const ValueId v = b.contract(in, "attn_v", h.n_kv_heads * h.head_dim, Builder::Bias::required);
        const ValueId q_turned = b.rope_query(q, RopePairs::halves);
        const ValueId k_turned = b.rope_key(k, RopePairs::halves);
        const Builder::KvStates kv = b.kv_write(k_turned, v);
        const ValueId attn = b.attention(q_turned, kv, true);
        const ValueId attn_out = b.contract(attn, "attn_output", h.n_embd, Builder::Bias::required);
        x = b.add(x, attn_out, "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "post_attention_norm");
        x = b.add(x, b.experts(ffn_in, Builder::Weights::chosen, GluKind::clamped, Builder::Bias::required),
                  "residual");
    }
    b.begin_output();
    x = b.gather_outputs(x);
    b.logits(b.rmsnorm(x, "output_norm"));
}

}  // namespace ridge
