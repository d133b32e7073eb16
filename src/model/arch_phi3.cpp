// phi3: Phi-3, Phi-3.5, Phi-4. One matrix holds q, k and v, another gate and up. Only the first n_rot elements of a
// head turn. Long contexts have factors of their own (longrope).
#include "model/builder.h"

namespace ridge {

void build_phi3(Builder &b) {
    const Hparams &h = b.h;
    b.rope_tables();
    const uint32_t n_q = h.n_heads * h.head_dim, n_kv = h.n_kv_heads * h.head_dim, n_qkv = n_q + 2 * n_kv;
    ValueId x = b.embed("token_embd");
    for (uint32_t layer = 0; layer < h.n_layers; layer++) {
        b.begin_layer(layer);
        const ValueId in = b.rmsnorm(x, "attn_norm");
        const ValueId q = b.contract_part(in, "attn_qkv", "attn_q", 0, n_q, n_qkv);
        const ValueId k = b.contract_part(in, "attn_qkv", "attn_k", n_q, n_kv, n_qkv);
        const ValueId v = b.contract_part(in, "attn_qkv", "attn_v", n_q + n_kv, n_kv, n_qkv);
        const ValueId attn = b.attend({q, k, v}, RopePairs::halves);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        const ValueId gate = b.contract_part(ffn_in, "ffn_up", "ffn_gate", 0, h.n_ff, 2 * h.n_ff);
        const ValueId up = b.contract_part(ffn_in, "ffn_up", "ffn_up", h.n_ff, h.n_ff, 2 * h.n_ff);
        const ValueId act = b.glu(gate, up);
        x = b.add(x, b.contract(act, "ffn_down", h.n_embd), "residual");
    }
    b.output(x);
}

}  // namespace ridge
