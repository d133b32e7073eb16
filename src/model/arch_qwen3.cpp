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
        const ValueId q = b.contract(in, "attn_q", h.n_heads * h.head_dim);
        const ValueId k = b.contract(in, "attn_k", h.n_kv_heads * h.head_dim);
        const ValueId v = b.contract(in, "attn_v", h.n_kv_heads * h.head_dim);
        const ValueId q_turned = b.rope_query(b.rmsnorm_heads(q, "attn_q_norm", h.head_dim), RopePairs::halves);
        const ValueId k_turned = b.rope_key(b.rmsnorm_heads(k, "attn_k_norm", h.head_dim), RopePairs::halves);
        const Builder::KvStates kv = b.kv_write(k_turned, v);
        const ValueId attn = b.attention(q_turned, kv);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        const ValueId gate = b.contract(ffn_in, "ffn_gate", h.n_ff);
        const ValueId up = b.contract(ffn_in, "ffn_up", h.n_ff);
        const ValueId act = b.glu(gate, up);
        x = b.add(x, b.contract(act, "ffn_down", h.n_embd), "residual");
    }
    b.begin_output();
    x = b.gather_outputs(x);
    b.logits(b.rmsnorm(x, "output_norm"));
}

}  // namespace ridge
