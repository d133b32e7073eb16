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
        const ValueId attn = b.attend(b.qkv(in, Builder::Bias::required), RopePairs::halves, true);
        const ValueId attn_out = b.contract(attn, "attn_output", h.n_embd, Builder::Bias::required);
        x = b.add(x, attn_out, "attn_residual");

        const ValueId ffn_in = b.rmsnorm(x, "post_attention_norm");
        x = b.add(x, b.experts(ffn_in, Builder::Weights::chosen, GluKind::clamped, Builder::Bias::required),
                  "residual");
    }
    b.output(x);
}

}  // namespace ridge
