#!/usr/bin/env python3
"""Makes tests/data/arch: tiny random models of every architecture, and what transformers computes with them.

    pip install numpy gguf torch transformers
    make_architecture_reference.py tests/data/arch [--f32] [--only NAME[,NAME]] [--save-hf FOLDER]

Each model is built from its configuration class with seeded random weights and written as GGUF under the keys, tensor
names and row orders that llama.cpp's converter uses (names come from the `gguf` package's own table). The tensors of
the file are views of the model's parameters: a matrix is rounded to its storage format (f16, Q8_0 or MXFP4) and the
rounded values are put back, so file and model hold the same numbers.

The logits are transformers' with eager attention, in f64 throughout: its forward passes ask for f32 by name inside
norms, softmaxes and rotary tables, and while they run that name stands for f64 (see in_f64). Numbers that a GGUF file
holds as f32 (epsilon, scales, factors of rotary frequencies) are rounded before the model is made.

--f32 writes all matrices in f32 with the same values, for engines that round activations to f16 or int8 when a matrix
is. --save-hf also writes each model as transformers saves it, for comparison with a converter's output.

reference.bin (little-endian, packed; `string` is u32 length and that many bytes of UTF-8):

    magic         8 bytes  "RDGARC01"
    provenance    string   versions, for people
    n_cases       u32
    then each case:
      name        string
      file        string   in the same folder
      context     u32      positions a session must have room for: it decides between short and long rotary factors
      n_vocab     u32
      n_tokens    u32
      first       u32      logits are recorded after tokens[0..first], and for each token from there on
      f32_error   f64      how far transformers in f32 is from these logits: the largest difference at a position over
                           the rms of its logits, the largest of all positions
      tokens      u32[n_tokens]
      logits      f64[n_tokens - first][n_vocab]
    end of file
"""

import argparse
import contextlib
import math
import os
import struct
import zlib
from dataclasses import dataclass, field

import gguf
import numpy as np
import torch
import transformers

VOCAB = 72
CONTEXT = 256
TOKENS = 36
LEAST_MARGIN = 0.02  # of a router: between the probabilities of the last expert taken and the best one left out
F16, F32 = gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32
Q8_0, MXFP4 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.MXFP4


def f32(x):
    """The number that a file with x in f32 holds."""
    return float(np.float32(x))


@dataclass
class Case:
    """A sequence to run: `tokens` of them in a session of `context`, logits from position `first` on."""
    suffix: str = ""
    tokens: int = TOKENS
    context: int = CONTEXT
    first: int = 12


@dataclass
class Variant:
    name: str
    arch: str          # general.architecture
    model: str         # prefix of transformers' <model>Config and <model>ForCausalLM
    config: dict       # what differs from COMMON
    keys: dict = field(default_factory=dict)  # metadata beyond what metadata() derives; None removes a key
    storage: object = F16                     # of matrices
    experts: object = None                    # of expert matrices, where it differs
    gains: dict = field(default_factory=dict)  # by part of a parameter's name
    cases: list = field(default_factory=lambda: [Case()])


COMMON = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=CONTEXT, rms_norm_eps=f32(1e-5), tie_word_embeddings=False,
              bos_token_id=None, eos_token_id=None, pad_token_id=None)
WIDE = dict(hidden_size=64)  # where head_dim can only be hidden / heads: 16
ARCHITECTURES = {a: getattr(gguf.MODEL_ARCH, a.upper().replace("-", "_")) for a in
                 ("llama", "qwen2", "qwen3", "qwen3moe", "qwen2moe", "gemma2", "gemma3", "phi3", "olmo2", "granite",
                  "gpt-oss", "mistral3")}
ADJACENT = ("llama", "granite", "mistral3")  # rotary pairs are neighbours in the file


def rope(kind, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **parameters}}


def llama(name, config=None, keys=None, storage=Q8_0):
    return Variant(name, "llama", "Llama", {"head_dim": 16, **(config or {})}, keys or {}, storage)


YARN = dict(factor=4.0, original_max_position_embeddings=256)
YARN_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 256}
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
GEMMA = dict(hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, head_dim=16, query_pre_attn_scalar=16,
             sliding_window=8, rms_norm_eps=f32(1e-6))
NARROW = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
              query_pre_attn_scalar=4)
NARROW_GAINS = {"q_proj": 0.7, "k_proj": 0.7}  # so that errors do not grow from layer to layer
# All pairs of YaRN's ramp occur: none, part and all of the interpolation.
GPT_OSS = dict(head_dim=32, num_local_experts=4, num_experts_per_tok=2, intermediate_size=32, sliding_window=8,
               max_position_embeddings=131072,
               rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0,
                                "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096})
GPT_OSS_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.yarn_beta_fast": 32.0,
                "rope.scaling.yarn_beta_slow": 1.0, "rope.scaling.original_context_length": 4096,
                "attention.sliding_window": 8, "expert_feed_forward_length": 32}
# As Phi-4-mini: three quarters of a head turn. The factors are exact in f32.
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 256,
            "short_factor": [1.0, 1.03125, 1.0625, 1.125, 1.25, 1.5],
            "long_factor": [1.0, 1.25, 1.75, 3.0, 5.5, 12.0],
            "attention_factor": f32(math.sqrt(1 + math.log(4) / math.log(256)))}
LONGROPE_KEYS = {"rope.scaling.original_context_length": 256,  # files of phi3 have no rope.scaling.type
                 "rope.scaling.attn_factor": LONGROPE["attention_factor"]}
# One sequence within the original context, one beyond it.
LONGROPE_CASES = [Case("-short"), Case("-long", tokens=272, context=512, first=256)]
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}}

VARIANTS = [
    llama("llama", WIDE, storage=F16),
    llama("llama-bias", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True), storage=F16),
    Variant("mixtral", "llama", "Mixtral", {
        "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "intermediate_size": 32,
        "sliding_window": None}, storage=Q8_0),
    Variant("qwen2", "qwen2", "Qwen2", {**WIDE, "tie_word_embeddings": True, **rope("default", rope_theta=1000000.0)},
            storage=Q8_0),
    Variant("qwen3", "qwen3", "Qwen3", {"head_dim": 16, **rope("default", rope_theta=1000000.0)}),
    Variant("qwen3moe", "qwen3moe", "Qwen3Moe", {"head_dim": 16, **MOE, "norm_topk_prob": True}),

    Variant("gemma3", "gemma3", "Gemma3", {
        **GEMMA, "num_hidden_layers": 7, "num_key_value_heads": 1, "intermediate_size": 32,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
            {"attention.sliding_window": 8, "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0}, storage=Q8_0),
    # As files of the 4B and larger, and of converters that did not write rope.freq_base_swa: 10000 by default, and the
    # local layers are not scaled.
    Variant("gemma3-linear", "gemma3", "Gemma3", {
        **GEMMA, "num_hidden_layers": 7, "num_key_value_heads": 1, "intermediate_size": 32,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
            {"attention.sliding_window": 8, "rope.freq_base": 1000000.0, "rope.scaling.type": "linear",
             "rope.scaling.factor": 8.0}, storage=Q8_0),
    Variant("phi3", "phi3", "Phi3", {**WIDE, **rope("default"), "sliding_window": None},
            {"rope.dimension_count": 16, "rope.scaling.original_context_length": 4096, "attention.sliding_window": 0},
            storage=Q8_0),
    Variant("phi3-partial", "phi3", "Phi3", {**WIDE, **PARTIAL, "sliding_window": None, "tie_word_embeddings": True},
            {"rope.dimension_count": 12, "rope.scaling.original_context_length": 4096, "attention.sliding_window": 0},
            storage=Q8_0),
    Variant("olmo2", "olmo2", "Olmo2", {**WIDE, "rms_norm_eps": f32(1e-6), **rope("default", rope_theta=500000.0)},
            storage=Q8_0),
    Variant("granite", "granite", "Granite", {
        **WIDE, "embedding_multiplier": 12.0, "residual_multiplier": f32(0.22), "attention_multiplier": f32(0.15),
        "logits_scaling": 2.0, "tie_word_embeddings": True, **rope("default", rope_theta=10000000.0)},
            {"rope.dimension_count": 16, "embedding_scale": 12.0, "residual_scale": f32(0.22),
             "attention.scale": f32(0.15), "logit_scale": 2.0},
            storage=Q8_0),
    Variant("gpt-oss", "gpt-oss", "GptOss", GPT_OSS, GPT_OSS_KEYS, experts=F16, storage=Q8_0,
            gains={"gate_up_proj": 3.0}),
    Variant("gpt-oss-mxfp4", "gpt-oss", "GptOss", GPT_OSS, GPT_OSS_KEYS, experts=MXFP4, storage=Q8_0,
            gains={"gate_up_proj": 3.0}),
    Variant("qwen2moe", "qwen2moe", "Qwen2Moe",
            {**WIDE, **MOE, "norm_topk_prob": False, "shared_expert_intermediate_size": 64,
             "intermediate_size": 96},
            {"expert_shared_feed_forward_length": 64}, storage=Q8_0),
    Variant("gemma2", "gemma2", "Gemma2", {
        **GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0, "num_hidden_layers": 3},
            {"attention.sliding_window": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0,
             "rope.freq_base": None},
            gains={"q_proj": 2.0, "k_proj": 2.0}),
    # Files of the two models of 27B are known by their layers; they scale scores by another width than head_dim.
    Variant("gemma2-27b", "gemma2", "Gemma2", {
        **GEMMA, **NARROW, "num_hidden_layers": 46, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
            {"attention.sliding_window": 8, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
             "rope.freq_base": None},
            gains=NARROW_GAINS),
    Variant("gemma3-27b", "gemma3", "Gemma3", {
        **GEMMA, **NARROW, "num_hidden_layers": 62,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
            {"attention.sliding_window": 8, "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0,
             "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}, gains=NARROW_GAINS),

    llama("llama-linear", rope("linear", factor=4.0), {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    # A file from before rope.scaling.type.
    llama("llama-linear-old", rope("linear", factor=4.0), {"rope.scale_linear": 4.0}),
    llama("llama3", rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                         original_max_position_embeddings=64, rope_theta=500000.0)),
    llama("llama-yarn", rope("yarn", **YARN), YARN_KEYS),
    llama("llama-yarn-factor",
          rope("yarn", **YARN, beta_fast=8.0, beta_slow=2.0, attention_factor=f32(1.4)),
          {**YARN_KEYS, "rope.scaling.yarn_attn_factor": f32(1.4), "rope.scaling.yarn_beta_fast": 8.0,
           "rope.scaling.yarn_beta_slow": 2.0}),
    Variant("qwen3-yarn", "qwen3", "Qwen3", {"head_dim": 16, **rope("yarn", **YARN, rope_theta=1000000.0)}, YARN_KEYS,
            storage=Q8_0),
    Variant("phi3-longrope", "phi3", "Phi3", {
        **WIDE, "rope_parameters": LONGROPE, "original_max_position_embeddings": 256, "max_position_embeddings": 1024,
        "sliding_window": 1024},
            {"rope.dimension_count": 12, "attention.sliding_window": 1024, **LONGROPE_KEYS}, storage=Q8_0,
            cases=LONGROPE_CASES),

    Variant("mistral", "llama", "Mistral", {"head_dim": 24, "sliding_window": None,
                                            **rope("default", rope_theta=1000000.0)}),
    Variant("mistral-window", "llama", "Mistral", {"head_dim": 16, "sliding_window": 8},
            {"attention.sliding_window": 8}, storage=Q8_0),
    Variant("phi3-window", "phi3", "Phi3", {**WIDE, **rope("default"), "sliding_window": 8},
            {"rope.dimension_count": 16, "rope.scaling.original_context_length": 4096, "attention.sliding_window": 8},
            storage=Q8_0),
    Variant("mistral3", "mistral3", "Mistral", {"head_dim": 24, "sliding_window": None}, storage=Q8_0),
    Variant("mistral3-yarn", "mistral3", "Ministral3", {
        "head_dim": 16, "max_position_embeddings": 1024,
        **rope("yarn", factor=16.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0, mscale=1.0,
               mscale_all_dim=1.0, llama_4_scaling_beta=f32(0.1))},
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 16.0, "rope.scaling.original_context_length": 16,
             "rope.scaling.yarn_beta_fast": 4.0, "rope.scaling.yarn_beta_slow": 1.0,
             "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": f32(0.1)}, storage=Q8_0),
    Variant("olmo3", "olmo2", "Olmo3", {
        **WIDE, "num_hidden_layers": 4, "sliding_window": 8, "intermediate_size": 32, "rms_norm_eps": f32(1e-6),
        "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "beta_fast": 32.0,
                               "beta_slow": 1.0, "original_max_position_embeddings": 128,
                               "attention_factor": f32(0.1 * math.log(8) + 1)},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}},
            {"rope.freq_base": 500000.0, "rope.freq_base_swa": 500000.0, "rope.scaling.type": "yarn",
             "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 128,
             "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0,
             "rope.scaling.yarn_attn_factor": f32(0.1 * math.log(8) + 1),
             "attention.sliding_window": 8, "attention.sliding_window_pattern": [True, True, True, False]},
            storage=Q8_0),
]


@contextlib.contextmanager
def in_f64():
    """While this lasts, the names by which transformers asks torch for f32 mean f64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
        torch.set_default_dtype(torch.float32)


def make_config(v):
    prefix = "Gemma3Text" if v.model == "Gemma3" else v.model
    config = getattr(transformers, prefix + "Config")(**{**COMMON, **v.config})
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def make_net(v, config):
    net = getattr(transformers, v.model + "ForCausalLM")(config).eval()
    if config.rope_parameters.get("rope_type") == "llama3":
        # The frequencies of a GGUF reader: the file holds their divisors, rounded to f32.
        plain, own = plain_frequencies(config), net.model.rotary_emb.inv_freq
        told = torch.tensor(plain / llama3_factors(config).astype(np.float64), dtype=own.dtype)
        assert torch.allclose(told, own, rtol=3e-7, atol=0)
        own.copy_(told)
    return net


def plain_frequencies(config):
    n = config.head_dim
    return config.rope_parameters["rope_theta"] ** (-np.arange(0, n, 2) / n)


def llama3_factors(config):
    """(head_dim / 2) What the frequencies are divided by: 1 below a wavelength, `factor` above another, and between
    them a blend of the two frequencies."""
    p, frequency = config.rope_parameters, plain_frequencies(config)
    turns = p["original_max_position_embeddings"] * frequency / (2 * np.pi)  # over the original context
    share = np.clip((turns - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"]), 0, 1)
    return (1 / (share + (1 - share) / p["factor"])).astype(np.float32)


def randomize(v, net):
    """Seeded values of a size at which every term matters: pre-activations around 1, norms around 1, biases 0.3."""
    generator = torch.Generator().manual_seed(zlib.crc32(v.name.encode()))
    plus_one, tied = v.arch.startswith("gemma"), net.config.tie_word_embeddings
    for name, p in net.named_parameters():
        x = torch.randn(p.shape, generator=generator)
        if name.endswith("norm.weight") or "layernorm" in name:
            x = torch.round(x * 0.2 * 1024) / 1024 + (0 if plus_one else 1)  # so that adding 1 in f32 is exact
        elif name.endswith("bias"):
            x *= 0.3
        elif not name.endswith("sinks"):
            inputs = p.shape[1] if v.arch == "gpt-oss" and "experts" in name else p.shape[-1]
            # A tied embedding is small, so that the logits are not.
            gain = (2.0 if tied else math.sqrt(inputs)) if "embed_tokens" in name else 1.2
            if ".router." in name or name.endswith("mlp.gate.weight"):
                gain = 4.0  # so that experts are chosen by a margin
            x *= next((g for part, g in v.gains.items() if part in name), gain) / math.sqrt(inputs)
        p.data.copy_(x)


def experts_split(v, name, p):
    """Expert tensors of the file, (experts, out, in), as (name, view) of a parameter that may hold gate and up."""
    base, part = name.rsplit(".", 1)
    kind = "bias" if part.endswith("_bias") else "weight"
    part = part.removesuffix("_bias")
    if v.arch == "gpt-oss":  # (experts, in, out), gate and up in turn
        view = p if kind == "bias" else p.transpose(-1, -2)
        halves = (view[:, 0::2], view[:, 1::2])
    else:
        view, half = p, p.shape[1] // 2
        halves = (view[:, :half], view[:, half:])
    if part == "down_proj":
        return [(f"{base}.down_proj.{kind}", view)]
    return [(f"{base}.gate_proj.{kind}", halves[0]), (f"{base}.up_proj.{kind}", halves[1])]


def pieces(v, config, name, p):
    """(name, view, shape in the file) for each tensor that a parameter becomes."""
    if ".mlp.experts." in name:
        return [(n, view, view.shape) for n, view in experts_split(v, name, p)]
    if name.endswith("sinks"):
        name += ".weight"
    if "shared_expert_gate" in name and ".0." in name:
        return [(name, p[0], p[0].shape)]  # older converters wrote a vector, newer ones a matrix of one row
    if v.arch in ADJACENT and ("q_proj" in name or "k_proj" in name):
        # Elements j and j + d/2 of a head become neighbours.
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        view = p.view(heads, 2, p.shape[0] // heads // 2, *p.shape[1:]).transpose(1, 2)
        return [(name, view, p.shape)]
    return [(name, p, p.shape)]


def storage_of(v, tensor, shape):
    if len(shape) == 1 or tensor.endswith((".bias", "_norm.weight")) or ".ffn_gate_inp" in tensor:
        return F32
    return v.experts if v.experts is not None and "_exps." in tensor else v.storage


def file_tensors(v, config, net):
    """[(tensor name, values as stored, format)], the net's parameters rounded to what is stored."""
    names = gguf.get_tensor_name_map(ARCHITECTURES[v.arch], config.num_hidden_layers)
    out = []
    for name, p in net.named_parameters():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for piece, view, shape in pieces(v, config, name, p.data):
            tensor = names.get_name(piece, try_suffixes=(".weight", ".bias"))
            assert tensor, piece
            values = view.reshape(shape).numpy().copy()
            kind = storage_of(v, tensor, shape)
            stored = values.astype(np.float16) if kind == F16 else gguf.quants.quantize(values, kind)
            rounded = gguf.quants.dequantize(stored, kind).astype(np.float32).reshape(shape)
            view.copy_(torch.tensor(rounded).reshape(view.shape))
            if v.arch.startswith("gemma") and tensor.endswith("_norm.weight"):
                stored = rounded = rounded + np.float32(1)
            out.append((tensor, stored, rounded, kind))
    p = config.rope_parameters
    if p.get("rope_type") == "llama3":
        factors = llama3_factors(config)
        out.append(("rope_freqs.weight", factors, factors, F32))
    for which in ("long", "short"):
        if f"{which}_factor" in p:
            factors = np.array(p[f"{which}_factor"], dtype=np.float32)
            out.append((f"rope_factors_{which}.weight", factors, factors, F32))
    return out


def metadata(v, config):
    """Keys under the architecture's name, with the types that a converter gives them."""
    keys = {
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads, "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps, "vocab_size": config.vocab_size,
    }
    if "head_dim" in v.config:
        keys["attention.key_length"] = keys["attention.value_length"] = config.head_dim
    if v.arch in ("llama", "mistral3"):
        keys["rope.dimension_count"] = config.head_dim
    if "rope_theta" in config.rope_parameters:
        keys["rope.freq_base"] = float(config.rope_parameters["rope_theta"])
    if "num_experts_per_tok" in v.config:
        keys["expert_count"] = v.config.get("num_experts") or v.config["num_local_experts"]
        keys["expert_used_count"] = config.num_experts_per_tok
    if "moe_intermediate_size" in v.config:
        keys["expert_feed_forward_length"] = config.moe_intermediate_size
    keys.update(v.keys)
    return {key: value for key, value in keys.items() if value is not None}


def write_file(path, v, config, tensors, all_f32):
    w = gguf.GGUFWriter(path, v.arch)
    w.add_name(f"tiny {v.name}")
    w.add_tokenizer_model("none")
    for key, value in metadata(v, config).items():
        key = f"{v.arch}.{key}"
        if isinstance(value, list):
            w.add_array(key, value)
        elif isinstance(value, str):
            w.add_string(key, value)
        elif isinstance(value, float):
            assert value == f32(value), (key, value)
            w.add_float32(key, value)
        else:
            w.add_uint32(key, value)
    for name, stored, rounded, kind in tensors:
        if all_f32 or kind in (F16, F32):
            w.add_tensor(name, np.ascontiguousarray(rounded if all_f32 else stored))
        else:
            w.add_tensor(name, stored, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def logits_of(net, tokens):
    with torch.inference_mode():
        return net(torch.tensor(tokens)[None], use_cache=False).logits[0].numpy()


def closest_calls(net, tokens):
    """(tokens) The least margin of any layer's router; infinite without routers."""
    closest = np.full(len(tokens), np.inf)

    def look(module, _, output):
        p = -np.sort(-torch.softmax(output[0], -1).numpy(), -1)
        np.minimum(closest, p[:, module.top_k - 1] - p[:, module.top_k], out=closest)

    hooks = [m.register_forward_hook(look) for m in net.modules() if type(m).__name__.endswith("TopKRouter")]
    logits_of(net, tokens)
    for h in hooks:
        h.remove()
    return closest


def random_tokens(v, case, net):
    """Any tokens, but those that put a router before a close call: rounded arithmetic may decide that otherwise."""
    rng = np.random.default_rng(zlib.crc32((v.name + case.suffix).encode()))
    tokens = rng.integers(0, VOCAB, case.tokens)
    while (close := closest_calls(net, tokens) < LEAST_MARGIN).any():
        tokens[close.argmax():] = rng.integers(0, VOCAB, case.tokens - close.argmax())
    return tokens


def run_case(v, case, config, net, exact):
    """The encoded case."""
    tokens = random_tokens(v, case, net)
    with in_f64():
        want = logits_of(exact, tokens)
    got = logits_of(net, tokens)
    assert want.dtype == np.float64 and got.dtype == np.float32
    rms = np.sqrt((want ** 2).mean(-1, keepdims=True))
    error = float((np.abs(got - want) / rms).max())
    name = v.name + case.suffix
    print(f"{name}: rms of the logits {rms.mean():.3f}, transformers in f32 is off by {error:.1e} of it")
    assert error < 1e-4, name
    data = string(name) + string(v.name + ".gguf")
    data += struct.pack("<IIIId", case.context, config.vocab_size, case.tokens, case.first, error)
    return data + tokens.astype("<u4").tobytes() + want[case.first:].astype("<f8").tobytes()


def string(s):
    data = s.encode("utf-8")
    return struct.pack("<I", len(data)) + data


def make_variant(v, options):
    """Writes the model's file; returns its encoded cases."""
    config = make_config(v)
    net = make_net(v, config)
    randomize(v, net)
    tensors = file_tensors(v, config, net)
    path = os.path.join(options.folder, v.name + ".gguf")
    write_file(path, v, config, tensors, options.f32)
    if options.save_hf:
        net.save_pretrained(os.path.join(options.save_hf, v.name))
    with in_f64():
        exact = make_net(v, make_config(v))
        exact.load_state_dict(net.state_dict())
    assert {p.dtype for p in exact.parameters()} | {b.dtype for b in exact.buffers()} == {torch.float64}
    print(f"{path}: {os.path.getsize(path)} bytes")
    return [run_case(v, case, config, net, exact) for case in v.cases]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--f32", action="store_true", help="all matrices in f32")
    parser.add_argument("--only", help="these variants, separated by commas")
    parser.add_argument("--save-hf", metavar="FOLDER")
    options = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation, whatever the machine
    os.makedirs(options.folder, exist_ok=True)
    chosen = [v for v in VARIANTS if not options.only or v.name in options.only.split(",")]
    cases = [data for v in chosen for data in make_variant(v, options)]
    provenance = (f"transformers {transformers.__version__}, torch {torch.__version__}, eager attention in f64")
    data = b"RDGARC01" + string(provenance) + struct.pack("<I", len(cases)) + b"".join(cases)
    with open(os.path.join(options.folder, "reference.bin"), "wb") as f:
        f.write(data)
    print(f"{len(cases)} cases, reference.bin: {len(data)} bytes")


if __name__ == "__main__":
    main()
