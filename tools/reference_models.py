"""A GGUF file as a network of transformers, as a forward pass in numpy and f64, and as a tokenizer: all not ours.

    model = Model(path)               metadata, and the tensors as f32, dequantised by the `gguf` package
    net = make_transformer(model)     f32, eager attention
    logits = f32_logits(net, tokens)
    check = f64_logits(model, tokens, rows)
    encode = make_tokenizer(model)

The f64 pass reads the file's own layout and shares nothing with transformers, so a mistake in the configuration, in a
name, in undoing the row order of Q and K (llama) or the 1 + w of norms (gemma3) cannot pass in both.
"""

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Callable

import gguf
import numpy as np
import torch
import transformers

from tokenizer_references import BYTES, byte_level_bpe, sentence_pieces

GEMMA3_LOCAL_BASE = 10000.0  # of layers with a window: files had no key for it at first
GEMMA3_PATTERN = 6           # every sixth layer sees everything; there is no key either


class Model:
    """The GGUF file: metadata, and every tensor as f32 under its GGUF name, shape (out, in)."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.sha256 = hashlib.file_digest(f, "sha256").digest()
        reader = gguf.GGUFReader(path)
        self.meta = {key: field.contents() for key, field in reader.fields.items()}
        # dequantize returns (out, in): GGUF lists the fastest dimension first.
        self.tensors = {t.name: np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32, order="C")
                        for t in reader.tensors}
        self.arch = self.meta["general.architecture"]
        if self.arch not in ARCHITECTURES:
            raise SystemExit(f"{path}: architecture {self.arch}; there are {', '.join(ARCHITECTURES)}")
        self.tied = "output.weight" not in self.tensors
        self.n_vocab = len(self.tensors["token_embd.weight"])

    def hp(self, key):
        return self.meta[f"{self.arch}.{key}"]

    def tokenizer_field(self, key):
        return self.meta.get(f"tokenizer.ggml.{key}")

    def named(self, *names):
        """The ids of those tokens that there are."""
        return [i for i, token in enumerate(self.tokenizer_field("tokens")) if token in names]

    def head_dim(self):
        key = f"{self.arch}.attention.key_length"
        return self.meta[key] if key in self.meta else self.hp("embedding_length") // self.hp("attention.head_count")


@dataclass(frozen=True)
class Architecture:
    prefix: str                        # of transformers' <prefix>Config and <network>
    network: str
    config: Callable[[Model], dict]    # what differs from common_config()
    names: dict                        # of a layer's tensors, beyond LAYER_NAMES
    neighbours: bool = False           # rope turns neighbours (2i, 2i+1) in the file; transformers turns (i, i + d/2)
    norm_offset: float = 0             # a norm's weight in the file less that in transformers


LAYER_NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
               "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
               "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
               "ffn_down": "mlp.down_proj"}


def rope(base):
    return {"rope_type": "default", "rope_theta": base}


def llama_config(model):
    return dict(head_dim=model.hp("rope.dimension_count"), rope_parameters=rope(model.hp("rope.freq_base")),
                attention_bias=False, mlp_bias=False, hidden_act="silu")


def qwen2_config(model):
    return dict(rope_parameters=rope(model.hp("rope.freq_base")), use_sliding_window=False, hidden_act="silu")


def gemma3_config(model):
    return dict(head_dim=model.head_dim(), query_pre_attn_scalar=model.head_dim(),
                sliding_window=model.hp("attention.sliding_window"), hidden_activation="gelu_pytorch_tanh",
                rope_parameters={"full_attention": rope(model.hp("rope.freq_base")),
                                 "sliding_attention": rope(GEMMA3_LOCAL_BASE)})


ARCHITECTURES = {
    "llama": Architecture("Llama", "LlamaForCausalLM", llama_config, {}, neighbours=True),
    "qwen2": Architecture("Qwen2", "Qwen2ForCausalLM", qwen2_config, {}),
    "gemma3": Architecture(
        "Gemma3Text", "Gemma3ForCausalLM", gemma3_config,
        {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
         "post_ffw_norm": "post_feedforward_layernorm"}, norm_offset=1),
}


def common_config(model):
    return dict(vocab_size=model.n_vocab, hidden_size=model.hp("embedding_length"),
                intermediate_size=model.hp("feed_forward_length"), num_hidden_layers=model.hp("block_count"),
                num_attention_heads=model.hp("attention.head_count"),
                num_key_value_heads=model.hp("attention.head_count_kv"),
                max_position_embeddings=model.hp("context_length"),
                rms_norm_eps=model.hp("attention.layer_norm_rms_epsilon"), tie_word_embeddings=model.tied,
                attn_implementation="eager")


def unpermute(w, n_heads):
    """Rows of Q or K from neighbouring pairs to halves."""
    n, k = w.shape
    return w.reshape(n_heads, n // n_heads // 2, 2, k).swapaxes(1, 2).reshape(n, k)


def for_transformers(model, name, w):
    """(name, values) of a tensor there."""
    arch = ARCHITECTURES[model.arch]
    parts = name.split(".")
    kind = parts[-2]
    if kind.endswith("norm") and arch.norm_offset:
        stored, w = w, w - np.float32(arch.norm_offset)
        assert np.array_equal(w + np.float32(arch.norm_offset), stored), f"{name}: the subtraction rounds"
    if kind in ("attn_q", "attn_k") and arch.neighbours:
        assert parts[-1] == "weight", f"{name}: biases have this row order too, and are not handled"
        w = unpermute(w, model.hp("attention.head_count" if kind == "attn_q" else "attention.head_count_kv"))
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{(LAYER_NAMES | arch.names)[kind]}.{parts[-1]}", w
    return {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[kind] + ".weight", w


def make_transformer(model):
    arch = ARCHITECTURES[model.arch]
    config = getattr(transformers, arch.prefix + "Config")(**common_config(model), **arch.config(model))
    net = getattr(transformers, arch.network)(config).to(torch.float32).eval()
    state = {}
    for name, w in model.tensors.items():
        name, w = for_transformers(model, name, w)
        state[name] = torch.from_numpy(np.ascontiguousarray(w))
    if model.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    net.load_state_dict(state, strict=True)
    return net


def f32_logits(net, tokens, keep=0):
    """(tokens, n_vocab) f32, one pass over all tokens without a cache; the last `keep` rows where that is not 0."""
    with torch.inference_mode():
        return net(torch.tensor([tokens]), use_cache=False, logits_to_keep=keep).logits[0].numpy()


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


@dataclass
class Facts:
    """What the f64 pass knows of an architecture; changed in one place to see what a mistake costs."""
    eps: float
    window: int          # tokens that a layer with a window sees, itself included; 0: no such layers
    base: float
    local_base: float = GEMMA3_LOCAL_BASE
    pattern: int = GEMMA3_PATTERN
    embedding_scale: float = 1
    neighbours: bool = False
    activation: Callable = silu

    @staticmethod
    def of(model):
        facts = Facts(model.hp("attention.layer_norm_rms_epsilon"), 0, model.hp("rope.freq_base"))
        if model.arch == "llama":
            facts.neighbours = True
        if model.arch == "gemma3":
            facts.window = model.hp("attention.sliding_window")
            facts.embedding_scale = model.hp("embedding_length") ** 0.5
            facts.activation = gelu_tanh
        return facts

    def is_local(self, layer):
        return self.window > 0 and (layer + 1) % self.pattern != 0


def turn(x, base, neighbours):
    """x (t, heads, d): each pair is one complex number, turned by position * base^(-2i/d)."""
    t, _, d = x.shape
    angle = np.arange(t)[:, None] * base ** (-np.arange(0, d, 2) / d)  # (t, d/2)
    real, imag = (x[..., 0::2], x[..., 1::2]) if neighbours else (x[..., :d // 2], x[..., d // 2:])
    z = (real + 1j * imag) * np.exp(1j * angle)[:, None, :]
    if neighbours:
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)
    return np.concatenate([z.real, z.imag], axis=-1)


def f64_logits(model, tokens, rows, facts=None):
    """The same forward pass again, in f64, on the file's own row order. (rows, n_vocab)"""
    facts = facts or Facts.of(model)
    w = lambda name: model.tensors[name].astype(np.float64)
    heads, kv_heads = model.hp("attention.head_count"), model.hp("attention.head_count_kv")
    t, d = len(tokens), model.head_dim()
    norm = lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + facts.eps) * g
    ago = np.arange(t)[:, None] - np.arange(t)  # (query, key)
    x = model.tensors["token_embd.weight"][tokens].astype(np.float64) * facts.embedding_scale
    for layer in range(model.hp("block_count")):
        lw = lambda name: w(f"blk.{layer}.{name}.weight")
        has = lambda name: f"blk.{layer}.{name}" in model.tensors
        normed = lambda x, name: norm(x, lw(name)) if has(f"{name}.weight") else x

        def project(x, name):
            bias = w(f"blk.{layer}.{name}.bias") if has(f"{name}.bias") else 0
            return x @ lw(name).T + bias

        local = facts.is_local(layer)
        base = facts.local_base if local else facts.base
        mask = np.where((ago < 0) | (local & (ago >= facts.window)), -np.inf, 0)
        h = norm(x, lw("attn_norm"))
        q = turn(normed(project(h, "attn_q").reshape(t, heads, d), "attn_q_norm"), base, facts.neighbours)
        k = turn(normed(project(h, "attn_k").reshape(t, kv_heads, d), "attn_k_norm"), base, facts.neighbours)
        v = project(h, "attn_v").reshape(t, kv_heads, d)
        o = np.empty_like(q)
        for i in range(heads):
            j = i // (heads // kv_heads)
            s = q[:, i] @ k[:, j].T / np.sqrt(d) + mask
            p = np.exp(s - s.max(-1, keepdims=True))
            o[:, i] = p / p.sum(-1, keepdims=True) @ v[:, j]
        x = x + normed(project(o.reshape(t, -1), "attn_output"), "post_attention_norm")
        h = norm(x, lw("ffn_norm"))
        g = facts.activation(project(h, "ffn_gate")) * project(h, "ffn_up")
        x = x + normed(project(g, "ffn_down"), "post_ffw_norm")
    h = norm(x[rows], w("output_norm.weight"))
    output = model.tensors["token_embd.weight" if model.tied else "output.weight"]
    # A part of the vocabulary at a time: the whole matrix in f64 takes gigabytes.
    return np.concatenate([h @ output[i:i + 16384].astype(np.float64).T for i in range(0, len(output), 16384)], axis=-1)


def make_tokenizer(model):
    """A function (text, in which the names of control tokens are these tokens) -> ids."""
    field = model.tokenizer_field
    tokens, types = field("tokens"), field("token_type")
    if field("model") == "gpt2":
        return byte_level_bpe(tokens, types, field("merges"), field("pre"), parse_special=True)
    if field("model") != "llama":
        raise SystemExit(f"no tokenizer for {field('model')}")
    control = {name: i for i, (name, kind) in enumerate(zip(tokens, types)) if kind == gguf.TokenType.CONTROL}
    if field("add_space_prefix"):
        raise SystemExit("a space prefix: stretches of text between control tokens would each get one")
    plain = sentence_pieces(tokens, types, field("scores"), False, False, False, b"")
    split = re.compile("(" + "|".join(map(re.escape, sorted(control, key=len, reverse=True))) + ")")
    return lambda text: [i for part in split.split(text) if part
                         for i in ([control[part]] if part in control else plain(part))]


def spell(model, ids):
    """The text of tokens, the names of control tokens included."""
    tokens, types = model.tokenizer_field("tokens"), model.tokenizer_field("token_type")
    data = b""
    for name, kind in ((tokens[i], types[i]) for i in ids):
        if kind == gguf.TokenType.BYTE:
            data += bytes([int(name[3:5], 16)])
        elif kind == gguf.TokenType.NORMAL and model.tokenizer_field("model") == "gpt2":
            data += b"".join(BYTES[c] for c in name)
        elif kind == gguf.TokenType.NORMAL:
            data += name.replace("▁", " ").encode()
        else:
            data += name.encode()
    return data.decode("utf-8", errors="replace")
