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
        const ValueId q = b.contract(x, "attn_q", h.n_heads * h.head_dim);
        const ValueId k = b.contract(x, "attn_k", h.n_kv_heads * h.head_dim);
        const ValueId v = b.contract(x, "attn_v", h.n_kv_heads * h.head_dim);
        const ValueId q_turned = b.rope_query(b.rmsnorm(q, "attn_q_norm"), RopePairs::halves);
        const ValueId k_turned = b.rope_key(b.rmsnorm(k, "attn_k_norm"), RopePairs::halves);
        const Builder::KvStates kv = b.kv_write(k_turned, v);
        const ValueId attn = b.attention(q_turned, kv);
        const ValueId attn_out = b.contract(attn, "attn_output", h.n_embd);
        x = b.add(x, b.rmsnorm(attn_out, "post_attention_norm"), "attn_residual");

        const ValueId gate = b.contract(x, "ffn_gate", h.n_ff);
        const ValueId up = b.contract(x, "ffn_up", h.n_ff);
        const ValueId down = b.contract(b.glu(gate, up), "ffn_down", h.n_embd);
        x = b.add(x, b.rmsnorm(down, "post_ffw_norm"), "residual");
    }
    b.begin_output();
    x = b.gather_outputs(x);
    b.logits(b.rmsnorm(x, "output_norm"));
}

}  // namespace ridge
