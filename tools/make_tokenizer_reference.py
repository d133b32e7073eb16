#!/usr/bin/env python3
"""Writes what other implementations make of the texts for the tokenizer tests
(tests/text/test_agreement.cpp and test_pre_tokenizer.cpp).

    pip install tokenizers tiktoken sentencepiece protobuf gguf jinja2
    for what in smollm2 qwen2.5 gemma3 vocabularies; do scripts/fetch_model.py $what; done
    tools/make_tokenizer_reference.py [--llama-cpp llama_cpp_ids]
    tools/make_tokenizer_reference.py --show VOCABULARY TEXT          the reference's ids, with their tokens

Texts: tests/data/tokenizer_corpus.json, written by hand, and tokenizer_random.json, generated here. References: the
published tokenizers (tokenizer_references.py), which decide, and llama.cpp (llama_cpp_ids.cpp) on the same file, whose
every difference from them must have a reason below. Written are

    tokenizer_random.json   texts from a seed
    tokenizer_pieces.json   the pieces of each text under each pre-tokenizer, as a hash of their lengths in bytes; and
                            of a text with every character that Unicode 14 has
    tokenizer_small.json    a vocabulary of 700 tokens trained on the corpus, and its ids
    tokenizer_ids.json      ids under the vocabularies of real models, and of conversations under their own templates
    tokenizer_chat.json     these conversations as each template renders them

Ids are kept as "count:hash", the hash FNV-1a with 64 bits over the ids as 32-bit little-endian numbers; a few texts
have all their ids.
"""
import argparse
import functools
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import unicodedata

import gguf
import jinja2.sandbox
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from published_pre_tokenizers import PRE_TOKENIZERS
from tokenizer_references import byte_level_bpe, reference

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
CACHE = pathlib.Path(os.environ.get("RIDGE_MODELS") or pathlib.Path.home() / ".cache/ridge")

# file below the cache -> the pre-tokenizer, where the file names none; which published form decides, where several do
VOCABULARIES = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": {},
    "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf": {},
    "gemma-3-270m-q4_k_m.gguf": {},
    "vocabularies/ggml-vocab-aquila.gguf": {"pre": "gpt-2"},
    "vocabularies/ggml-vocab-baichuan.gguf": {},
    "vocabularies/ggml-vocab-command-r.gguf": {},
    "vocabularies/ggml-vocab-deepseek-coder.gguf": {},
    "vocabularies/ggml-vocab-deepseek-llm.gguf": {},
    "vocabularies/ggml-vocab-falcon.gguf": {},
    "vocabularies/ggml-vocab-gemma-4.gguf": {},
    "vocabularies/ggml-vocab-gpt-2.gguf": {},
    "vocabularies/ggml-vocab-gpt-neox.gguf": {"pre": "gpt-2"},
    "vocabularies/ggml-vocab-llama-bpe.gguf": {},
    "vocabularies/ggml-vocab-llama-spm.gguf": {"published": "llama 2"},
    "vocabularies/ggml-vocab-mpt.gguf": {},
    "vocabularies/ggml-vocab-nomic-bert-moe.gguf": {},
    "vocabularies/ggml-vocab-phi-3.gguf": {"published": "phi-3"},
    "vocabularies/ggml-vocab-qwen2.gguf": {},
    "vocabularies/ggml-vocab-qwen35.gguf": {},
    "vocabularies/ggml-vocab-refact.gguf": {},
    "vocabularies/ggml-vocab-starcoder.gguf": {},
    "vocabularies/deepseek-v4.gguf": {},
    "vocabularies/llama4.gguf": {"published": "tiktoken"},
    "vocabularies/mistral-tekken.gguf": {"published": "tiktoken"},
    "vocabularies/mistral-v1.gguf": {},
    "vocabularies/mistral-v3.gguf": {},
    "vocabularies/qwen3.6.gguf": {"published": "tiktoken"},
}

# The chat templates that conversations are rendered with.
TEMPLATES = {"SmolLM2": "SmolLM2-135M-Instruct.Q4_1.gguf", "Qwen2.5": "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"}

# Why llama.cpp's ids differ from the published tokenizer's, and for which vocabularies that is so.
REASONS = {
    "default pre-tokenizer": (
        "the file names no pre-tokenizer, for which llama.cpp has a default of its own",
        {"ggml-vocab-aquila", "ggml-vocab-gpt-neox"}),
    "case and marks": (
        "llama.cpp takes [^A-Z] and [^a-z] for the small and capital letters of the pattern, and no marks for letters",
        {"llama4", "mistral-tekken"}),
    "names": (
        "llama.cpp takes tokens of certain names (</s>, <unk) for control tokens, whatever type the file gives them",
        {"ggml-vocab-phi-3", "ggml-vocab-qwen2", "ggml-vocab-qwen35", "gemma-3-270m-q4_k_m", "ggml-vocab-gemma-4",
         "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M"}),
    "runs of spaces": (
        "llama.cpp finds the user-defined tokens for runs of spaces in spaces only; sentencepiece in U+2581 as well",
        {"gemma-3-270m-q4_k_m"}),
    "ties": (
        "of several segmentations with the best score llama.cpp takes another one than sentencepiece",
        {"ggml-vocab-nomic-bert-moe"}),
    "spaces outside ASCII": (
        "llama.cpp turns white space outside ASCII into U+000B before it matches, so a pattern's U+3000 finds nothing",
        {"ggml-vocab-deepseek-llm"}),
}
FULL = ("greeting", "contractions", "digits", "emoji with modifiers", "Chinese", "names of control tokens")


@functools.cache
def texts():
    cases = [c for name in ("tokenizer_corpus.json", "tokenizer_random.json")
             for c in json.loads((DATA / name).read_text(encoding="utf-8"))["cases"]]
    return {c["name"]: c["text"] * c.get("repeat", 1) for c in cases if "text" in c}


def fnv1a(numbers):
    value = 0xCBF29CE484222325
    for byte in struct.pack(f"<{len(numbers)}i", *numbers):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def brief(ids):
    return f"{len(ids)}:{fnv1a(ids)}"


def write(name, value):
    """One line per entry of the inner objects, so that a difference can be read."""
    def dump(v, depth):
        if isinstance(v, dict) and v and depth < 2:
            inner = ",\n".join("  " * (depth + 1) + json.dumps(k, ensure_ascii=False) + ": " + dump(x, depth + 1)
                               for k, x in v.items())
            return "{\n" + inner + "\n" + "  " * depth + "}"
        if isinstance(v, list) and v and isinstance(v[0], dict):
            return "[\n" + ",\n".join("  " * (depth + 1) + json.dumps(x, ensure_ascii=name == "tokenizer_random.json")
                                      for x in v) + "]"
        return json.dumps(v, ensure_ascii=False, separators=(",", ":"))
    (DATA / name).write_text(dump(value, 0) + "\n", encoding="utf-8")


def write_random():
    """Texts of few different parts each, so that parts meet in every order."""
    rng = random.Random(20240630)
    parts = [
        *"aAzZéÉßñøЖжΣςאبअইกกำຂམ中国日カかー々〇한글ㄱㅎ", "\u0301", "\u0308", "\u094d", "\u0e49", "\u20e3", "\ufe0f", "\u200d",
        " ", " ", "  ", "   ", "        ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2028", "\u0085",
        "\u200b",
        "0", "7", "12", "123", "1234", "٣", "४", "５", "½", "²", "Ⅷ", "①", "〇", *"'’ʼ\"-_.,!?;:/\\()[]{}<>|@#$%^&*+=~`",
        "…", "。", "，", "「", "」", "—", "€", "№", "→", "😀", "👍🏽", "👩‍🚀", "🇩🇪", "❤️", "'s", "'S", "'ll", "'RE", "'d", "’t",
        " the", "The", "ing", "word", "Word", "WORD", "camelCase", "HTTPServer", "привет", "Привет", "καλημέρα",
        "नमस्ते", "สวัสดี", "こんにちは", "안녕하세요", "مرحبا", "שלום", "你好", "café", "cafe\u0301", "ﬁ", "Ａ", "𝒜", "𐐀", "\ue000",
        "\u0378", "\ufffd", "\x00", "\x1b", "\x7f", "\u00ad", "▁", "▁▁", "Ġ", "<", "</s>",
        "<|im_end|>", "<0x41>", "://", "e.g.",
        "3.14", "1,000",
    ]
    cases = []
    for number in range(150):
        some = rng.sample(parts, rng.choice([3, 6, 12, 40, len(parts)]))
        text = "".join(rng.choice(some) for _ in range(rng.choice([4, 8, 16, 40])))
        cases.append({"name": f"random {number}", "text": text})
    write("tokenizer_random.json", {"about": "Generated by tools/make_tokenizer_reference.py.", "cases": cases})


def characters():
    """Ranges of the characters that Unicode 14 has, of which Python 3.11 knows the table; few of the large blocks of
    one kind each."""
    assert unicodedata.unidata_version == "14.0.0", "run this with Python 3.11"
    alike = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0x17000, 0x18CFF),
             (0x20000, 0x10FFFF)]
    ranges = []
    for c in range(0x110000):
        if unicodedata.category(chr(c)) in ("Cn", "Cs"):
            continue
        if any(a + 2 < c < b - 2 and c % 199 for a, b in alike):
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


# The table of the package's step Punctuation is older: these became punctuation later, or cease to be it.
def is_new_punctuation(c):
    old = pre_tokenizers.Punctuation("isolated").pre_tokenize_str("a" + chr(c))
    return (len(old) == 2) != (unicodedata.category(chr(c))[0] == "P") and c > 0x7F


def piece_lengths(pre, text):
    """In the byte alphabet one character is one byte."""
    return [len(piece) for piece, _ in PRE_TOKENIZERS[pre].pre_tokenize_str(text)]


def write_pieces():
    ranges = characters()
    every = [c for first, last in ranges for c in range(first, last + 1)]
    new = [c for c in every if is_new_punctuation(c)]
    around = "a%cZ%c1%c%c %c\n"

    def of_every(left_out):
        return "".join(around.replace("%c", chr(c)) for c in every if c not in left_out)
    rows = {}
    for pre in PRE_TOKENIZERS:
        sweep = of_every(set(new) if pre in ("falcon", "chameleon") else ())
        rows[pre] = " ".join(fnv1a(piece_lengths(pre, t)) for t in [sweep, *texts().values()])
    write("tokenizer_pieces.json", {
        "about": "Of each pre-tokenizer: the hash of a text with all characters, then those of the texts in order.",
        "characters": ranges, "around": around, "punctuation_after_unicode_8": new, "rows": rows})


def write_small():
    """Qwen's pre-tokenizer, all 256 bytes, three control tokens and one user-defined."""
    pre = "qwen2"
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = PRE_TOKENIZERS[pre]
    learner.train_from_iterator(texts().values(), trainers.BpeTrainer(
        vocab_size=696, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(learner.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    types = [1] * len(tokens) + [3] * 3 + [4]
    tokens += ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"]
    plain, special = (byte_level_bpe(tokens, types, merges, pre, p) for p in (False, True))
    write("tokenizer_small.json", {"pre": pre, "tokens": tokens, "types": types, "merges": merges,
                                   **kept("tokenizers", plain, special)})


def kept(package, plain, special):
    """What tests compare: `special` only where control tokens in the text make a difference."""
    ids = {name: plain(text) for name, text in texts().items()}
    entry = {"reference": package, "ids": " ".join(map(brief, ids.values())), "full": {n: ids[n] for n in FULL}}
    if special:
        parsed = {name: special(text) for name, text in texts().items()}
        entry["ids_with_special"] = {n: brief(i) for n, i in parsed.items() if i != ids[n]}
        entry["full_with_special"] = {n: parsed[n] for n in FULL if parsed[n] != ids[n]}
    return entry


def field_of(path):
    reader = gguf.GGUFReader(path)
    return lambda key: reader.fields[key].contents() if key in reader.fields else None


def load(file):
    field = field_of(CACHE / file)
    options = VOCABULARIES[file]
    pre = options.get("pre") or field("tokenizer.ggml.pre")
    return field, pre, reference(lambda key: field("tokenizer.ggml." + key), pre, options.get("published"))


def llama_cpp(program, path):
    requests = b"".join(struct.pack("<I", len(b)) + b + bytes([special])
                        for b in (t.encode() for t in texts().values()) for special in (0, 1))
    output = subprocess.run([program, path], input=requests, stdout=subprocess.PIPE, check=True).stdout.decode()
    lines = [list(map(int, line.split())) for line in output.split("\n")[:-1]]
    return lines[0::2], lines[1::2]


def reason_for(file, name, text):
    stem = pathlib.Path(file).stem
    reasons = [key for key, (_, stems) in REASONS.items() if stem in stems]
    if len(reasons) > 1:
        reasons = ["names"] if "</s>" in text else reasons[1:]
    if not reasons:
        print(f"{file}: llama.cpp has other ids for '{name}' than the published tokenizer; find out why",
              file=sys.stderr)
    return reasons[0] if reasons else "unknown"


def compare(program, file, plain, special):
    """Counts of equal ids, and the texts with others by reason."""
    ours, theirs = ([plain, special or plain], llama_cpp(program, CACHE / file))
    differs, same = {}, 0
    for at, (name, text) in enumerate(texts().items()):
        if all(f(text) == ids[at] for f, ids in list(zip(ours, theirs))[:2 if special else 1]):
            same += 1
        else:
            differs.setdefault(reason_for(file, name, text), []).append(name)
    return {"same": same, "differs": differs}


def write_ids(program, only):
    entries = []
    previous = {}
    if (DATA / "tokenizer_ids.json").exists():
        previous = {v["file"]: v for v in json.loads(
            (DATA / "tokenizer_ids.json").read_text(encoding="utf-8"))["vocabularies"]}
    for file in VOCABULARIES:
        if only and only not in file:
            entries.append(previous[file])
            continue
        field, pre, (package, plain, special) = load(file)
        entry = {"file": file, **{k: pre for k in VOCABULARIES[file] if k == "pre"}, **kept(package, plain, special)}
        entry["llama_cpp"] = compare(program, file, plain, special) if program else previous[file]["llama_cpp"]
        if file in TEMPLATES.values():
            template = field("tokenizer.chat_template")
            entry["chat"] = [special(render(template, messages, True)) for messages in CONVERSATIONS]
        entries.append(entry)
        print(file, entry["reference"], entry["llama_cpp"] and entry["llama_cpp"]["same"], "of", len(texts()))
    write("tokenizer_ids.json", {
        "reasons": {key: reason for key, (reason, _) in REASONS.items()},
        "vocabularies": entries})


def write_chat():
    templates = {name: field_of(CACHE / file)("tokenizer.chat_template") for name, file in TEMPLATES.items()}
    # Published with Qwen3-0.6B; Apache 2.0.
    templates["Qwen3"] = (DATA / "tokenizer_template_qwen3.jinja").read_text(encoding="utf-8")
    write("tokenizer_chat.json", {
        "templates": templates,
        "conversations": [{"messages": c} for c in CONVERSATIONS],
        "rendered": {name: [{"prompt": render(t, c, True), "closed": render(t, c, False)} for c in CONVERSATIONS]
                     for name, t in templates.items()}})


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


def show(file, name):
    field, _, (package, plain, special) = load(next(f for f in VOCABULARIES if file in f))
    tokens, text = field("tokenizer.ggml.tokens"), texts()[name]
    for how, f in (("plain", plain), ("control tokens found", special)):
        if f:
            ids = f(text)
            print(f"{package}, {how}: {brief(ids)}\n" + " ".join(f"{i}={tokens[i]!r}" for i in ids))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--llama-cpp", help="the program made of llama_cpp_ids.cpp; else its last result is kept")
    arguments.add_argument("--only", help="make the ids of the vocabularies with this in their name, and nothing else")
    arguments.add_argument("--show", nargs=2, metavar=("VOCABULARY", "TEXT"))
    args = arguments.parse_args()
    if args.show:
        show(*args.show)
        return
    if not args.only:
        write_random()
        texts.cache_clear()
        write_pieces()
        write_small()
        write_chat()
    write_ids(args.llama_cpp, args.only)


if __name__ == "__main__":
    main()
