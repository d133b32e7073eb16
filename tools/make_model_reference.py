#!/usr/bin/env python3
"""Makes tests/data/*_reference.bin: what a real model computes, by code that is not ours.

    pip install numpy gguf torch transformers tokenizers sentencepiece tiktoken
    make_model_reference.py smollm2|qwen2.5|gemma3 MODEL.gguf OUTPUT.bin    (scripts/fetch_model.py NAME is the model)
    make_model_reference.py smollm2|qwen2.5|gemma3 MODEL.gguf --mistakes    prints what some mistakes cost

The reference is the model's class of transformers in f32 with eager attention, its weights dequantised to f32 by the
`gguf` package. A second forward pass, in numpy and f64 straight from the file's own layout (reference_models.py), must
agree with it before anything is written. How far the two are apart is stored in the file as the noise floor of the
reference.

Layout (little-endian, packed; `string` is u32 length and that many bytes of UTF-8):

    magic          8 bytes   "RDGREF01"
    model_sha256   32 bytes  of the GGUF file
    provenance     string    versions and the noise floor, for people
    floor_mean_kl  f64       mean KL(f64 pass || this reference) over the recorded positions, whole vocabulary
    floor_max_kl   f64       the largest of the same
    n_vocab        u32
    n_top          u32
    n_sequences    u32
    then each sequence:
      name         string
      text         string    what was tokenised; names of control tokens in it are these tokens
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
from dataclasses import dataclass, replace
from importlib.metadata import version

import numpy as np
import torch
import transformers

import reference_models as models

N_GREEDY = 64
MARGIN_TIE = 1e-3  # below this the greedy choice counts as a tie, in the tests too


def chatml(system, question):
    return (f"<|im_start|>system\n{system}<|im_end|>\n"
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")


SMOLLM2_CHAT = chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face",
                      "Explain in simple terms why the sky is blue during the day and red at sunset.")
QWEN25_CHAT = chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
                     "Explain binary search, and say when it is of no use.")
GEMMA3_CHAT = ("<bos><start_of_turn>user\nExplain in simple terms why the sky is blue during the day and red at sunset."
               "<end_of_turn>\n<start_of_turn>model\n")

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

LONGER = LONG + """ She took down a jar from one of the shelves as she passed; it was labelled "ORANGE MARMALADE", \
but to her great disappointment it was empty; she did not like to drop the jar for fear of killing somebody \
underneath, so managed to put it into one of the cupboards as she fell past it.

"Well!" thought Alice to herself. "After such a fall as this, I shall think nothing of tumbling down stairs! How brave \
they'll all think me at home! Why, I wouldn't say anything about it, even if I fell off the top of the house!" (Which \
was very likely true.)"""


def every(step):
    """All positions with that step, and the last."""
    return lambda prompt, total: sorted({*range(0, total, step), total - 1})


def greedy_steps(prompt, total):
    """The start of the template, then each position that decides a greedy token, and the one after the last."""
    return [*range(0, prompt - 1, 6), *range(prompt - 1, total)]


def from_position(first, step):
    """Every position around `first`, then all with that step, and the last."""
    return lambda prompt, total: sorted({*range(first - 4, first + 4), *range(first, total, step), total - 1})


@dataclass
class Spec:
    file_sha256: str
    n_top: int
    # (name, text, greedy tokens to add, recorded positions, positions with the whole logits: negative from the end)
    sequences: list
    mistakes: list  # what to change in models.Facts


MODELS = {
    "smollm2": Spec("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 512, [
        ("chat", SMOLLM2_CHAT, N_GREEDY, greedy_steps, [0, -1 - N_GREEDY, -20]),
        ("code", CODE, 0, every(3), [-1]),
        ("multilingual", MULTILINGUAL, 0, every(3), [-1, 60]),
        ("numbers", NUMBERS, 0, every(3), [-1]),
        ("long", LONG, 0, every(16), [-1]),
    ], [dict(eps=1e-6), dict(base=100100.0)]),
    "qwen2.5": Spec("1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", 128, [
        ("chat", QWEN25_CHAT, N_GREEDY, greedy_steps, [-20]),
        ("code", CODE, 0, every(4), []),
        ("multilingual", MULTILINGUAL, 0, every(4), []),
        ("numbers", NUMBERS, 0, every(4), []),
        ("long", LONG, 0, every(16), []),
    ], [dict(eps=1e-5), dict(base=1001000.0)]),
    # All 262,144 logits of one position would take a megabyte.
    "gemma3": Spec("a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", 128, [
        ("chat", GEMMA3_CHAT, N_GREEDY, greedy_steps, []),
        ("code", "<bos>" + CODE, 0, every(3), []),
        ("multilingual", "<bos>" + MULTILINGUAL, 0, every(3), []),
        ("numbers", "<bos>" + NUMBERS, 0, every(3), []),
        # The window is 512: from position 512 on a layer with a window no longer sees <bos>.
        ("window", "<bos>" + LONGER, 0, from_position(512, 5), []),
    ], [dict(window=511), dict(window=513), dict(base=1001000.0), dict(local_base=10010.0), dict(eps=1e-5),
        dict(embedding_scale=25.25), dict(activation=models.gelu_erf)]),
}


def greedy(model, net, tokens, count):
    """`count` tokens, each the argmax (the lowest id among equals). Without a cache: one thing less to trust."""
    out = []
    for _ in range(count):
        out.append(int(np.argmax(models.f32_logits(net, tokens + out, keep=1)[-1])))
    ends = {model.tokenizer_field("eos_token_id"), *model.named("<|im_end|>", "<end_of_turn>")}
    if ends & set(out):
        sys.exit("the greedy continuation ends early; choose another prompt")
    return out


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


def encode_position(position, logits, n_top, full):
    # A stable sort of the negated logits keeps ascending ids among equals.
    ids = np.argsort(-logits, kind="stable")[:n_top]
    data = struct.pack("<IId", position, int(full), float(log_sum_exp(logits)))
    data += array(ids, "<u4") + array(logits[ids], "<f4")
    return data + (array(logits, "<f4") if full else b"")


def top_two_gap(logits):
    two = np.sort(np.partition(logits, -2, axis=-1)[:, -2:], axis=-1)
    return two[:, 1] - two[:, 0]


def make_sequence(model, encode, net, n_top, sequence):
    """The encoded sequence, and KL(f64 pass || reference) at its recorded positions."""
    name, text, n_greedy, choose, full = sequence
    prompt = encode(text)
    if models.spell(model, prompt) != text:
        sys.exit(f"{name}: the tokens do not decode to the text")
    tokens = prompt + greedy(model, net, prompt, n_greedy)
    n_prompt, positions = len(prompt), choose(len(prompt), len(tokens))
    full = {p if p >= 0 else len(tokens) + p for p in full}
    assert full <= set(positions), (name, full, positions)

    steps = list(range(n_prompt - 1, len(tokens) - 1))  # the positions that decide the greedy tokens
    logits = models.f32_logits(net, tokens)
    margins = top_two_gap(logits[steps])
    if not np.array_equal(logits[steps].argmax(-1), tokens[n_prompt:]):
        sys.exit(f"{name}: the greedy tokens change when they are teacher-forced")
    logits = logits[positions]
    check = models.f64_logits(model, tokens, positions)
    decides = np.isin(positions, steps)
    assert decides.sum() == len(steps), f"{name}: every greedy step must be recorded"
    changed = check[decides].argmax(-1) != tokens[n_prompt:]
    if np.any(changed & (top_two_gap(check[decides]) >= MARGIN_TIE)):
        sys.exit(f"{name}: the f64 pass chooses other greedy tokens")
    divergence = kl(check, logits)
    print(f"{name}: {n_prompt} + {len(tokens) - n_prompt} tokens, {len(positions)} positions, {len(full)} whole; "
          f"against f64: mean KL {divergence.mean():.2e}, max {divergence.max():.2e}, "
          f"largest logit difference {np.abs(check - logits).max():.2e}, "
          f"top-1 equal {(check.argmax(-1) == logits.argmax(-1)).mean():.4f}, "
          f"smallest top-two gap {top_two_gap(logits).min():.4f}")
    if n_greedy:
        print(f"  smallest greedy margin {margins.min():.4f}\n  {models.spell(model, tokens[n_prompt:])!r}")
    data = string(name) + string(text) + struct.pack("<II", n_prompt, len(tokens)) + array(tokens, "<u4")
    data += array(margins, "<f4") + struct.pack("<I", len(positions))
    data += b"".join(encode_position(p, l, n_top, p in full) for p, l in zip(positions, logits))
    return data, divergence


def print_mistakes(model, encode, spec):
    """KL(f64 pass || the same with one fact changed), over the recorded positions of the sequences without greedy."""
    runs = [(tokens, choose(len(tokens), len(tokens))) for tokens, n_greedy, choose in
            ((encode(text), n_greedy, choose) for _, text, n_greedy, choose, _ in spec.sequences) if n_greedy == 0]
    right = [models.f64_logits(model, *run) for run in runs]
    for change in spec.mistakes:
        facts = replace(models.Facts.of(model), **change)
        cost = np.concatenate([kl(r, models.f64_logits(model, *run, facts)) for r, run in zip(right, runs)])
        what = ", ".join(f"{name} {getattr(value, '__name__', value)}" for name, value in change.items())
        print(f"{what}: mean KL {cost.mean():.1e}, max {cost.max():.1e}", flush=True)


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in MODELS:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(MODELS)} MODEL.gguf OUTPUT.bin|--mistakes")
    spec, path, output = MODELS[sys.argv[1]], *sys.argv[2:]
    torch.set_num_threads(1)  # one order of summation, whatever the machine
    model = models.Model(path)
    if model.sha256.hex() != spec.file_sha256:
        sys.exit(f"{path}: another file than the one that scripts/fetch_model.py {sys.argv[1]} gives")
    encode = models.make_tokenizer(model)
    if output == "--mistakes":
        print_mistakes(model, encode, spec)
        return
    net = models.make_transformer(model)
    parts, floors = zip(*(make_sequence(model, encode, net, spec.n_top, s) for s in spec.sequences))
    floor = np.concatenate(floors)
    if floor.max() > 1e-8:
        sys.exit(f"reference and f64 pass disagree: largest KL {floor.max():.2e}")
    provenance = (f"{model.meta['general.name']}; transformers {transformers.__version__} {type(net).__name__} f32 "
                  f"eager, torch {torch.__version__}, weights by gguf {version('gguf')}; against a numpy f64 pass: "
                  f"mean KL {floor.mean():.2e}, max {floor.max():.2e} over {len(floor)} positions")
    data = b"RDGREF01" + model.sha256 + string(provenance)
    data += struct.pack("<ddIII", floor.mean(), floor.max(), model.n_vocab, spec.n_top, len(parts))
    data += b"".join(parts)
    with open(output, "wb") as f:
        f.write(data)
    print(f"{provenance}\n{output}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
