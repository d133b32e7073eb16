// llama: Llama 1 to 3, Mistral (windows), Mixtral (experts), SmolLM2, and others in their shape; and mistral3, whose
// queries grow with their position. GGUF files hold q and k
// with their rows permuted so that adjacent elements turn together. Biases are optional. Llama 3 brings
// rope_freqs.weight.
#include "model/builder.h"

namespace ridge {

void build_llama(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        const ValueId q = b.contract(in, "attn_q", h.n_heads * h.head_dim);
        const ValueId k = b.contract(in, "attn_k", h.n_kv_heads * h.head_dim);
        const ValueId v = b.contract(in, "attn_v", h.n_kv_heads * h.head_dim);
        const ValueId q_turned = b.rope_query(q, RopePairs::adjacent);
        const ValueId k_turned = b.rope_key(k, RopePairs::adjacent);
        const Builder::KvStates kv = b.kv_write(k_turned, v);
        const ValueId attn = b.attention(q_turned, kv);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        if (h.n_experts > 0) {
            x = b.add(x, b.experts(ffn_in), "residual");
            continue;
        }
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
