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
        const ValueId attn = b.attend(b.qkv(in, Builder::Bias::required), RopePairs::halves);
        x = b.add(x, b.contract(attn, "attn_output", h.n_embd), "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "ffn_norm");
        const ValueId routed = b.experts(ffn_in, Builder::Weights::all);
        const ValueId shared = b.feed_forward(ffn_in, h.n_ff_shared, GluKind::silu, "_shexp");
        const ValueId weighted = b.row_gate(shared, b.contract(ffn_in, "ffn_gate_inp_shexp", 1));
        x = b.add(x, b.add(routed, weighted, "ffn_sum"), "residual");
    }
    b.output(x);
}

}  // namespace ridge
