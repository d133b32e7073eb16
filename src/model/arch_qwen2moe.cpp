// qwen2moe: Qwen1.5 and Qwen2 with experts. Attention as in qwen2. Experts count with their probabilities as they are;
// one more that every token uses is weighted by a sigmoid.
#include "model/builder.h"

namespace ridge {

void build_qwen2moe(Builder &b) {
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
        const ValueId attn = b.attention(q_turned, kv);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        const ValueId routed = b.experts(ffn_in, Builder::Weights::all);
        const ValueId gate = b.contract(ffn_in, "ffn_gate_shexp", h.n_ff_shared);
        const ValueId up = b.contract(ffn_in, "ffn_up_shexp", h.n_ff_shared);
        const ValueId shared = b.contract(b.glu(gate, up), "ffn_down_shexp", h.n_embd);
        const ValueId weighted = b.row_gate(shared, b.contract(ffn_in, "ffn_gate_inp_shexp", 1));
        x = b.add(x, b.add(routed, weighted, "ffn_sum"), "residual");
    }
    b.begin_output();
    x = b.gather_outputs(x);
    b.logits(b.rmsnorm(x, "output_norm"));
}

}  // namespace ridge
