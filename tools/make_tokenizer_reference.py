#!/usr/bin/env python3
"""Writes what other implementations make of tests/data/tokenizer_corpus.json, for the tests of src/text.

    pip install tokenizers gguf jinja2
    tools/make_tokenizer_reference.py --smollm2 SmolLM2-135M-Instruct.Q4_1.gguf --qwen2 Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf

The references share nothing with src/text: PyPI `tokenizers` cuts with Oniguruma and merges with its own code, `gguf`
reads the vocabularies, `jinja2` renders the chat templates under the settings of transformers. Written are

    tokenizer_pieces.json    lengths of a text's pieces under each pre-tokenizer
    tokenizer_small.json     a vocabulary of 700 tokens trained on the corpus itself, and its ids
    tokenizer_smollm2.json   ids under the model's vocabulary (which is not kept here), as are those of the next
    tokenizer_qwen2.json
    tokenizer_chat.json      conversations as each template renders them

The pre-tokenizers are written down as the tokenizer.json files of the models have them. The NFC normalizer of Qwen is
left out, as engines that read GGUF do; the texts that it would change are listed in tokenizer_qwen2.json.
"""
import argparse
import hashlib
import json
import pathlib
import unicodedata

import gguf
import jinja2.sandbox
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
CONTROL, USER_DEFINED = 3, 4

LATER = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=use_regex)


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(False)])


PRE_TOKENIZERS = {
    "gpt-2": byte_level(True),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
    "qwen2": split_then_bytes(LATER.replace("DIGITS", r"\p{N}")),
    "llama-bpe": split_then_bytes(LATER.replace("DIGITS", r"\p{N}{1,3}")),
}


def texts(corpus):
    return {c["name"]: c["text"] * c.get("repeat", 1) for c in corpus["cases"] if "text" in c}


def pieces(pre, text):
    """Byte lengths. In the byte alphabet one character is one byte."""
    return [len(piece) for piece, _ in PRE_TOKENIZERS[pre].pre_tokenize_str(text)]


def build(tokens, types, merges, pre, parse_special):
    """A tokenizer from the lists of a GGUF file, which knows control tokens in text only where asked."""
    model = models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, types):
        if kind == USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
        elif kind == CONTROL and parse_special:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
    return tokenizer


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def write(name, value):
    """One line per entry of the inner objects, so that a difference can be read."""
    def dump(v, depth):
        if isinstance(v, dict) and v and depth < 2:
            inner = ",\n".join("  " * (depth + 1) + json.dumps(k, ensure_ascii=False) + ": " + dump(x, depth + 1)
                               for k, x in v.items())
            return "{\n" + inner + "\n" + "  " * depth + "}"
        if isinstance(v, list) and v and isinstance(v[0], dict):
            return "[\n" + ",\n".join("  " * (depth + 1) + json.dumps(x, ensure_ascii=False) for x in v) + "]"
        return json.dumps(v, ensure_ascii=False, separators=(",", ":"))
    (DATA / name).write_text(dump(value, 0) + "\n", encoding="utf-8")


def write_small(corpus):
    """Qwen's pre-tokenizer, all 256 bytes, three control tokens and one user-defined."""
    pre = "qwen2"
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = PRE_TOKENIZERS[pre]
    learner.train_from_iterator(texts(corpus).values(), trainers.BpeTrainer(
        vocab_size=696, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(learner.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    types = [1] * len(tokens) + [CONTROL] * 3 + [USER_DEFINED]
    tokens += ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"]
    write("tokenizer_small.json", {
        "pre": pre, "tokens": tokens, "types": types, "merges": merges,
        **ids_of(corpus, tokens, types, merges, pre)})


def ids_of(corpus, tokens, types, merges, pre):
    plain = build(tokens, types, merges, pre, parse_special=False)
    special = build(tokens, types, merges, pre, parse_special=True)
    all_texts = texts(corpus)
    parsed = {name: encode(special, text) for name, text in all_texts.items()}
    ids = {name: encode(plain, text) for name, text in all_texts.items()}
    return {"ids": ids, "ids_with_special": {n: i for n, i in parsed.items() if i != ids[n]}}


def write_model(name, path, conversations):
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields[key].contents()
    tokens, types, merges = (field(f"tokenizer.ggml.{k}") for k in ("tokens", "token_type", "merges"))
    pre = field("tokenizer.ggml.pre")
    special = build(tokens, types, merges, pre, parse_special=True)
    template = field("tokenizer.chat_template")
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    corpus = json.loads((DATA / "tokenizer_corpus.json").read_text(encoding="utf-8"))
    write(name, {
        "file": pathlib.Path(path).name, "sha256": digest, "pre": pre,
        **ids_of(corpus, tokens, types, merges, pre),
        "changed_by_nfc": [n for n, t in texts(corpus).items() if unicodedata.normalize("NFC", t) != t],
        "chat": [{"conversation": i, "ids": encode(special, render(template, messages, True))}
                 for i, messages in enumerate(conversations)]})
    return template


def render(template, messages, add_generation_prompt):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(messages=messages, add_generation_prompt=add_generation_prompt)


def turns(*contents, system=None):
    messages = [{"role": "system", "content": system}] if system is not None else []
    roles = ["user", "assistant"]
    return messages + [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]


CONVERSATIONS = [
    turns("Hello!"),
    turns("Hello!", system="You answer in one word."),
    turns("  spaces and\nline breaks \n\n", system=""),
    turns("\n\nstarts with line breaks", "\nso does this\n", "1 + 1 = ?"),
    turns("What is 2+2?", "4", "And 3+3?", "6.", "Danke, schöne Grüße 👋🏽!"),
    turns("Why?", "<think>\nLet me see.\n</think>\n\nBecause.", "Really?"),
    turns("Why?", "<think>\n\nLet me see.\n\n</think>\n\n\nBecause."),
    turns("Why?", "no reasoning"),
    turns("Why?", "\n\nno reasoning, but line breaks\n"),
    turns("Why?", "a</think>b</think>\nc", "Go on"),
    turns("Why?", "<think>x<think>y\n</think>z"),
    [{"role": "assistant", "content": "I start."}, {"role": "user", "content": "Then I."}],
    [{"role": "user", "content": "a"}, {"role": "system", "content": "late system"}, {"role": "user", "content": "b"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>t</think>one"},
     {"role": "assistant", "content": "two"}],
    [{"role": "assistant", "content": "<think>t</think>alone"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>t</think>call"},
     {"role": "user", "content": "<tool_response>\n5\n</tool_response>"}],
    turns(""),
]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--smollm2", required=True)
    arguments.add_argument("--qwen2", required=True)
    args = arguments.parse_args()
    corpus = json.loads((DATA / "tokenizer_corpus.json").read_text(encoding="utf-8"))
    write("tokenizer_pieces.json", {pre: {n: pieces(pre, t) for n, t in texts(corpus).items()}
                                    for pre in PRE_TOKENIZERS})
    write_small(corpus)
    templates = {
        "SmolLM2": write_model("tokenizer_smollm2.json", args.smollm2, CONVERSATIONS),
        "Qwen2.5": write_model("tokenizer_qwen2.json", args.qwen2, CONVERSATIONS),
        # Published with Qwen3-0.6B; Apache 2.0.
        "Qwen3": (DATA / "tokenizer_template_qwen3.jinja").read_text(encoding="utf-8"),
    }
    write("tokenizer_chat.json", {
        "templates": templates,
        "conversations": [{"messages": c} for c in CONVERSATIONS],
        "rendered": {name: [{"prompt": render(t, c, True), "closed": render(t, c, False)} for c in CONVERSATIONS]
                     for name, t in templates.items()}})


if __name__ == "__main__":
    main()
