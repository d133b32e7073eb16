#!/usr/bin/env python3
"""Makes tests/data/smollm2_reference.bin: what SmolLM2-135M-Instruct Q4_1 computes, by code that is not ours.

    pip install numpy gguf torch transformers tokenizers
    make_smollm2_reference.py SmolLM2-135M-Instruct.Q4_1.gguf tests/data/smollm2_reference.bin

The reference is transformers' LlamaForCausalLM in f32 with eager attention, its weights dequantised to f32 by the
`gguf` package. A second forward pass, written below in numpy and f64 straight from the file's own layout, must agree
with it before anything is written: it shares neither the model code nor the rope convention, so a mistake in undoing
the row permutation of Q and K, or in the configuration, cannot pass. How far the two are apart is stored in the file
as the noise floor of the reference.

Layout (little-endian, packed; `string` is u32 length and that many bytes of UTF-8):

    magic          8 bytes   "RDGREF01"
    model_sha256   32 bytes  of the GGUF file
    provenance     string    versions and the noise floor, for people
    floor_mean_kl  f64       mean KL(f64 pass || this reference) over the recorded positions, whole vocabulary
    floor_max_kl   f64       the largest of the same
    n_vocab        u32
    n_top          u32       512
    n_sequences    u32
    then each sequence:
      name         string
      text         string    what was tokenised; "<|im_start|>" and "<|im_end|>" in it are control tokens
      n_prompt     u32       tokens that come from `text`
      n_tokens     u32       the rest, tokens[n_prompt..], is the greedy continuation (none in most sequences)
      tokens       u32[n_tokens]
      margins      f32[n_tokens - n_prompt]   of each greedy step: largest logit minus the second largest
      n_positions  u32
      then each recorded position, ascending:
        position   u32       logits after tokens[0..position], all of them teacher-forced
        has_full   u32       0 or 1
        logsumexp  f64       over the whole vocabulary
        ids        u32[n_top]   the largest logits, descending; equal ones by ascending id
        logits     f32[n_top]
        full       f32[n_vocab] only where has_full is 1, in order of token id
    end of file

With p_i = exp(logit_i - logsumexp) the top tokens and "any other token" are a distribution of n_top + 1 outcomes.
A KL over these outcomes never exceeds the KL over the whole vocabulary (merging outcomes loses information), which the
positions with `full` give.
"""

import hashlib
import struct
import sys

import gguf
import numpy as np
import tokenizers
import torch
import transformers

N_TOP = 512
N_GREEDY = 64
MARGIN_TIE = 1e-3  # below this the greedy choice counts as a tie, in the tests too

CHAT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat(question):
    return (f"<|im_start|>system\n{CHAT_SYSTEM}<|im_end|>\n"
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")


CODE = '''def binary_search(items, target):
    """Return the index of target in the sorted list items, or -1."""
    low, high = 0, len(items) - 1
    while low <= high:
        mid = (low + high) // 2
        if items[mid] == target:
            return mid
        if items[mid] < target:
            low = mid + 1
        else:
            high = mid - 1
    return -1
'''

MULTILINGUAL = ("Le chat dort sur le canapé. Die Straße war naß, überall Pfützen. ¿Dónde está la biblioteca? "
                "Москва — столица России. 今日は天気がいいですね。北京是中国的首都。 안녕하세요! שלום עולם. مرحبا بالعالم. "
                "Ελλάδα 🙂👩‍🚀")

NUMBERS = "x = 3.14159;\ty=-2.5e-10\r\n\n\n  1,234,567 + 890 = 1,235,457   (100%) 'don't' we'LL  \u00a0 end"

# The opening of "Alice's Adventures in Wonderland" (Lewis Carroll, 1865; public domain).
LONG = """Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: \
once or twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, \
"and what is the use of a book," thought Alice "without pictures or conversations?"

So she was considering in her own mind (as well as she could, for the hot day made her feel very sleepy and stupid), \
whether the pleasure of making a daisy-chain would be worth the trouble of getting up and picking the daisies, when \
suddenly a White Rabbit with pink eyes ran close by her.

There was nothing so very remarkable in that; nor did Alice think it so very much out of the way to hear the Rabbit \
say to itself, "Oh dear! Oh dear! I shall be late!" (when she thought it over afterwards, it occurred to her that she \
ought to have wondered at this, but at the time it all seemed quite natural); but when the Rabbit actually took a \
watch out of its waistcoat-pocket, and looked at it, and then hurried on, Alice started to her feet, for it flashed \
across her mind that she had never before seen a rabbit with either a waistcoat-pocket, or a watch to take out of it, \
and burning with curiosity, she ran across the field after it, and fortunately was just in time to see it pop down a \
large rabbit-hole under the hedge.

In another moment down went Alice after it, never once considering how in the world she was to get out again.

The rabbit-hole went straight on like a tunnel for some way, and then dipped suddenly down, so suddenly that Alice \
had not a moment to think about stopping herself before she found herself falling down a very deep well.

Either the well was very deep, or she fell very slowly, for she had plenty of time as she went down to look about her \
and to wonder what was going to happen next. First, she tried to look down and make out what she was coming to, but it \
was too dark to see anything; then she looked at the sides of the well, and noticed that they were filled with \
cupboards and book-shelves; here and there she saw maps and pictures hung upon pegs."""


def every(step):
    """All positions with that step, and the last."""
    return lambda prompt, total: sorted({*range(0, total, step), total - 1})


def greedy_steps(prompt, total):
    """The start of the template, then each position that decides a greedy token, and the one after the last."""
    return [*range(0, prompt - 1, 6), *range(prompt - 1, total)]


# (name, text, greedy tokens to add, recorded positions, positions with the whole logits: negative from the end)
SEQUENCES = [
    ("chat", chat("Explain in simple terms why the sky is blue during the day and red at sunset."), N_GREEDY,
     greedy_steps, [0, -1 - N_GREEDY, -20]),
    ("code", CODE, 0, every(3), [-1]),
    ("multilingual", MULTILINGUAL, 0, every(3), [-1, 60]),
    ("numbers", NUMBERS, 0, every(3), [-1]),
    ("long", LONG, 0, every(16), [-1]),
]


class Model:
    """The GGUF file: metadata, and every tensor as f32 under its GGUF name, shape (out, in)."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.sha256 = hashlib.file_digest(f, "sha256").digest()
        reader = gguf.GGUFReader(path)
        self.meta = {key: field.contents() for key, field in reader.fields.items()}
        # dequantize returns (out, in): GGUF lists the fastest dimension first.
        self.tensors = {t.name: np.ascontiguousarray(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32)
                        for t in reader.tensors}
        if self.meta["general.architecture"] != "llama" or "output.weight" in self.tensors:
            sys.exit(f"{path}: expected a llama model with tied embeddings")

    def hp(self, key):
        return self.meta[f"llama.{key}"]


def make_tokenizer(model):
    """Byte-level BPE from the file's own vocabulary; "smollm" splits off each digit, then words as GPT-2 does."""
    meta = model.meta
    if (meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        sys.exit("expected a gpt2 tokenizer with pre-tokenizer smollm")
    names = meta["tokenizer.ggml.tokens"]
    vocab = {name: i for i, name in enumerate(names)}
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    tok = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = tokenizers.decoders.ByteLevel()
    control = [n for n, t in zip(names, meta["tokenizer.ggml.token_type"]) if t == gguf.TokenType.CONTROL]
    tok.add_special_tokens(control)
    if tok.get_vocab_size() != len(names):
        sys.exit("adding the control tokens changed the vocabulary")
    return tok


def unpermute(w, n_heads):
    """GGUF stores Q and K rows so that rope turns neighbours (2i, 2i+1); transformers turns (i, i + d/2)."""
    n, k = w.shape
    return w.reshape(n_heads, n // n_heads // 2, 2, k).swapaxes(1, 2).reshape(n, k)


def make_transformer(model):
    heads, kv_heads = model.hp("attention.head_count"), model.hp("attention.head_count_kv")
    config = transformers.LlamaConfig(
        vocab_size=len(model.tensors["token_embd.weight"]),
        hidden_size=model.hp("embedding_length"),
        intermediate_size=model.hp("feed_forward_length"),
        num_hidden_layers=model.hp("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=model.hp("rope.dimension_count"),
        max_position_embeddings=model.hp("context_length"),
        rms_norm_eps=model.hp("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": model.hp("rope.freq_base")},
        tie_word_embeddings=True,
        attention_bias=False,
        mlp_bias=False,
        hidden_act="silu",
        attn_implementation="eager",
    )
    net = transformers.LlamaForCausalLM(config).to(torch.float32).eval()
    layer_names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
                   "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
                   "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
                   "ffn_down": "mlp.down_proj"}
    state = {}
    for name, w in model.tensors.items():
        if name == "token_embd.weight":
            state["model.embed_tokens.weight"] = state["lm_head.weight"] = torch.tensor(w)
        elif name == "output_norm.weight":
            state["model.norm.weight"] = torch.tensor(w)
        else:
            _, layer, kind, _ = name.split(".")
            if kind in ("attn_q", "attn_k"):
                w = unpermute(w, heads if kind == "attn_q" else kv_heads)
            state[f"model.layers.{layer}.{layer_names[kind]}.weight"] = torch.tensor(w)
    net.load_state_dict(state, strict=True)
    return net


def reference_logits(net, tokens):
    """(tokens, n_vocab) f32, one pass over all tokens without a cache."""
    with torch.inference_mode():
        return net(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def greedy(net, tokens, count, end_of_turn):
    """`count` tokens, each the argmax (the lowest id among equals). Without a cache: one thing less to trust."""
    out = []
    for _ in range(count):
        out.append(int(np.argmax(reference_logits(net, tokens + out)[-1])))
    if end_of_turn in out:
        sys.exit("the greedy continuation ends early; choose another prompt")
    return out


def numpy_logits(model, tokens):
    """The same forward pass again, in f64, on the file's own row order. (tokens, n_vocab)"""
    w = lambda name: model.tensors[name].astype(np.float64)
    heads, kv_heads = model.hp("attention.head_count"), model.hp("attention.head_count_kv")
    eps, t = model.hp("attention.layer_norm_rms_epsilon"), len(tokens)
    norm = lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * g
    x = w("token_embd.weight")[tokens]
    d = x.shape[1] // heads
    angle = np.arange(t)[:, None] * model.hp("rope.freq_base") ** (-np.arange(0, d, 2) / d)  # (t, d/2)
    turn = np.exp(1j * angle)[:, None, :]

    def rope(v):  # (t, heads, d): neighbours (2i, 2i+1) are one complex number
        z = (v[..., 0::2] + 1j * v[..., 1::2]) * turn
        return np.stack([z.real, z.imag], axis=-1).reshape(v.shape)

    mask = np.triu(np.full((t, t), -np.inf), 1)
    for layer in range(model.hp("block_count")):
        lw = lambda name: w(f"blk.{layer}.{name}.weight")
        h = norm(x, lw("attn_norm"))
        q = rope((h @ lw("attn_q").T).reshape(t, heads, d))
        k = rope((h @ lw("attn_k").T).reshape(t, kv_heads, d))
        v = (h @ lw("attn_v").T).reshape(t, kv_heads, d)
        o = np.empty_like(q)
        for i in range(heads):
            j = i // (heads // kv_heads)
            s = q[:, i] @ k[:, j].T / np.sqrt(d) + mask
            p = np.exp(s - s.max(-1, keepdims=True))
            o[:, i] = p / p.sum(-1, keepdims=True) @ v[:, j]
        x = x + o.reshape(t, -1) @ lw("attn_output").T
        h = norm(x, lw("ffn_norm"))
        g = h @ lw("ffn_gate").T
        x = x + (g / (1 + np.exp(-g)) * (h @ lw("ffn_up").T)) @ lw("ffn_down").T
    return norm(x, w("output_norm.weight")) @ w("token_embd.weight").T


def log_sum_exp(logits):
    x = logits.astype(np.float64)
    top = x.max(-1, keepdims=True)
    return np.log(np.exp(x - top).sum(-1)) + top[..., 0]


def kl(p_logits, q_logits):
    """KL(p || q) per row, over the whole vocabulary, in f64."""
    p = p_logits - log_sum_exp(p_logits)[..., None]
    q = q_logits - log_sum_exp(q_logits)[..., None]
    return (np.exp(p) * (p - q)).sum(-1)


def string(s):
    data = s.encode("utf-8")
    return struct.pack("<I", len(data)) + data


def array(values, dtype):
    return np.asarray(values, dtype=dtype).tobytes()


def encode_position(position, logits, full):
    # A stable sort of the negated logits keeps ascending ids among equals.
    ids = np.argsort(-logits, kind="stable")[:N_TOP]
    data = struct.pack("<IId", position, int(full), float(log_sum_exp(logits)))
    data += array(ids, "<u4") + array(logits[ids], "<f4")
    return data + (array(logits, "<f4") if full else b"")


def encode_sequence(name, text, n_prompt, tokens, logits, positions, full):
    two = -np.sort(-logits[n_prompt - 1:len(tokens) - 1], axis=-1)[:, :2]
    data = string(name) + string(text) + struct.pack("<II", n_prompt, len(tokens)) + array(tokens, "<u4")
    data += array(two[:, 0] - two[:, 1], "<f4") + struct.pack("<I", len(positions))
    return data + b"".join(encode_position(p, logits[p], p in full) for p in positions)


def make_sequence(model, tokenizer, net, spec):
    """The encoded sequence, and KL(f64 pass || reference) at its recorded positions."""
    name, text, n_greedy, choose, full = spec
    prompt = tokenizer.encode(text).ids
    if tokenizer.decode(prompt, skip_special_tokens=False) != text:
        sys.exit(f"{name}: the tokens do not decode to the text")
    tokens = prompt + greedy(net, prompt, n_greedy, model.meta["tokenizer.ggml.eos_token_id"])
    n_prompt, positions = len(prompt), choose(len(prompt), len(tokens))
    full = {p if p >= 0 else len(tokens) + p for p in full}
    assert full <= set(positions), (name, full, positions)

    logits = reference_logits(net, tokens)
    check = numpy_logits(model, tokens)
    steps = slice(n_prompt - 1, len(tokens) - 1)  # the positions that decide the greedy tokens
    if not np.array_equal(logits[steps].argmax(-1), tokens[n_prompt:]):
        sys.exit(f"{name}: the greedy tokens change when they are teacher-forced")
    two = -np.sort(-check[steps], axis=-1)[:, :2]
    changed = check[steps].argmax(-1) != tokens[n_prompt:]
    if np.any(changed & (two[:, 0] - two[:, 1] >= MARGIN_TIE)):
        sys.exit(f"{name}: the f64 pass chooses other greedy tokens")
    divergence = kl(check[positions], logits[positions])
    print(f"{name}: {n_prompt} + {len(tokens) - n_prompt} tokens, {len(positions)} positions, {len(full)} whole; "
          f"against f64: mean KL {divergence.mean():.2e}, max {divergence.max():.2e}, "
          f"largest logit difference {np.abs(check - logits).max():.2e}, "
          f"top-1 equal {(check.argmax(-1) == logits.argmax(-1)).mean():.4f}")
    if n_greedy:
        two = -np.sort(-logits[steps], axis=-1)[:, :2]
        print(f"  smallest greedy margin {(two[:, 0] - two[:, 1]).min():.4f}")
        print(f"  {tokenizer.decode(tokens[n_prompt:])!r}")
    return encode_sequence(name, text, n_prompt, tokens, logits, positions, full), divergence


def main():
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} MODEL.gguf OUTPUT.bin")
    torch.set_num_threads(1)  # one order of summation, whatever the machine
    model = Model(sys.argv[1])
    tokenizer, net = make_tokenizer(model), make_transformer(model)
    parts, floors = zip(*(make_sequence(model, tokenizer, net, spec) for spec in SEQUENCES))
    floor = np.concatenate(floors)
    if floor.max() > 1e-8:
        sys.exit(f"reference and f64 pass disagree: largest KL {floor.max():.2e}")
    provenance = (f"{model.meta['general.name']}; transformers {transformers.__version__} LlamaForCausalLM f32 eager, "
                  f"torch {torch.__version__}, weights by gguf {gguf_version()}; against a numpy f64 pass: "
                  f"mean KL {floor.mean():.2e}, max {floor.max():.2e} over {len(floor)} positions")
    data = b"RDGREF01" + model.sha256 + string(provenance)
    n_vocab = len(model.tensors["token_embd.weight"])
    data += struct.pack("<ddIII", floor.mean(), floor.max(), n_vocab, N_TOP, len(parts))
    data += b"".join(parts)
    with open(sys.argv[2], "wb") as f:
        f.write(data)
    print(f"{provenance}\n{sys.argv[2]}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


def gguf_version():
    from importlib.metadata import version
    return version("gguf")


if __name__ == "__main__":
    main()
