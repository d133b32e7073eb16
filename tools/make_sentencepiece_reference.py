#!/usr/bin/env python3
"""Writes tests/data/sentencepiece.json: four small vocabularies and the tokens that PyPI `sentencepiece` gives texts.

    pip install sentencepiece
    tools/make_sentencepiece_reference.py

The vocabularies are trained here, on the texts themselves and a few lines of prose, and kept whole, in the form that a
GGUF file has them:

    bpe            as Llama and Mistral: byte fallback, a space prefix, spaces kept
    bpe_user       as Gemma: no prefix, runs of line breaks and spaces and a tag as user-defined pieces
    unigram        as T5: a table of replacements (NFKC in part, case kept), extra spaces removed, an unknown token
    unigram_bytes  byte fallback, no prefix, spaces kept

Each has "ids", by the index of a text.
"""
import json
import pathlib
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"

PROSE = """The ridge is the point where the binding resource changes, and the roof above it is flat.
A token is a piece of text: a word, a part of one, or a byte. Tokens are counted, texts are not.
for (size_t i = 0; i < tokens.size(); ++i) { total += tokens[i]; }  // the sum of all the tokens
Der Grat ist der Punkt, an dem sich die knappe Größe ändert; über ihm liegt ein flaches Dach.
La crête est le point où la ressource limitante change, et le toit au-dessus est plat.
Хребет — это точка, где меняется ограничивающий ресурс, а крыша над ним плоская.
山の尾根は、資源が入れ替わる点です。その上の屋根は平らです。トークンは文章の一部です。
the theory there then they them these those other another weather whether together rather
12 123 1234 12345 2024-11-30 3.14159 1,000,000 0x1F 1e-9
"""

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "  a  b  ", "the", " the", "the tokens", "Hello, world!", "Hello\nworld\n",
    "\n", "\n\n\n", "a\n\nb", "tab\tand\ttab", "\r\n line \r\n", "the point where the resource changes",
    "It's what they'd say, isn't it?", "for (i = 0; i < 10; ++i) {\n    sum += i;\n}\n", "1234567890 3.14 1,000",
    "Größe ändert über Straße", "naïve café", "nai\u0308ve cafe\u0301", "Привет, мир", "こんにちは世界", "山の尾根は平らです。",
    "العربية نص", "हिन्दी पाठ", "한국어 텍스트", "👩🏿\u200d🚀 and 🏳️\u200d🌈", "ﬁne ﬂow", "ＡＢＣ １２３", "½ ① ㎏", "x\u200by\ufeffz",
    "no\u00a0break\u3000wide", "soft\u00adhyphen", "\u0000nul", "a\u0001b\u007fc", "▁", "a▁b", "▁▁ ▁", "<s>", "</s>", "<unk>",
    "<0x0A>", "<0x41><0xFF>", "<td>cell</td>", "a<td>b", "   three spaces   ", "mixed \t \n spaces", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
    "themselves", "tokentokentoken", "qzxjkv", "....!!!!????", "https://example.org/a?b=c&d=e#f", "e = mc² ≈ ∞",
]


def texts():
    rng = random.Random(20240601)
    words = PROSE.split() + ["<td>", "<s>", "\n", "\n\n", "  ", "   ", "ﬁ", "Ａ", "é", "世", "🚀", "\u200b", "▁", "\t"]
    made = [rng.choice([" ", "", "  "]).join(rng.choice(words) for _ in range(rng.randrange(2, 12))) for _ in range(120)]
    return TEXTS + PROSE.splitlines() + made


# Some rules of NFKC, in the library's own format: the code points of a text, a tab, those of its replacement.
RULES = [("ﬁ", "fi"), ("ﬂ", "fl"), ("½", "1⁄2"), ("①", "1"), ("㎏", "kg"), ("²", "2"), ("\u00a0", " "), ("\u3000", " "),
         ("\t", " "), ("\n", " "), ("\r", " "), ("\u200b", ""), ("\ufeff", ""), ("\u00ad", ""), ("\u0001", ""),
         ("a\u0308", "ä"), ("i\u0308", "ï"), ("e\u0301", "é"), ("\r\n", " ")]
RULES += [(chr(0xFF01 + i), chr(0x21 + i)) for i in range(94)]


def train(folder, name, corpus, **settings):
    prefix = str(folder / name)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=prefix, num_threads=1, minloglevel=2, hard_vocab_limit=False, **settings)
    return prefix + ".model"


def entry(path, all_texts):
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(pathlib.Path(path).read_bytes())
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    rules = model.normalizer_spec
    return {
        "family": {1: "t5", 2: "llama"}[model.trainer_spec.model_type],
        "tokens": [p.piece for p in model.pieces],
        "scores": [p.score for p in model.pieces],
        "types": [p.type for p in model.pieces],
        "bos": model.trainer_spec.bos_id,
        "eos": model.trainer_spec.eos_id,
        "unknown": model.trainer_spec.unk_id,
        "add_space_prefix": rules.add_dummy_prefix,
        "remove_extra_whitespaces": rules.remove_extra_whitespaces,
        "charsmap": rules.precompiled_charsmap.hex(),
        "ids": [processor.encode(text) for text in all_texts],
    }


def main():
    all_texts = texts()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        corpus = folder / "corpus.txt"
        corpus.write_text(PROSE * 3 + "\n".join(t.replace("\0", "") for t in TEXTS))
        rules = folder / "rules.tsv"
        numbers = ["\t".join(" ".join(f"{ord(c):X}" for c in side) for side in rule) for rule in RULES]
        rules.write_text("\n".join(numbers) + "\n")
        kept = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
        models = {
            "bpe": train(folder, "bpe", corpus, model_type="bpe", vocab_size=700, byte_fallback=True, **kept),
            "bpe_user": train(
                folder, "bpe_user", corpus, model_type="bpe", vocab_size=700, byte_fallback=True,
                add_dummy_prefix=False, user_defined_symbols=["\n", "\n\n", "▁▁", "▁▁▁", "<td>"],
                control_symbols=["<turn>"], **kept),
            "unigram": train(
                folder, "unigram", corpus, model_type="unigram", vocab_size=400, normalization_rule_tsv=str(rules)),
            "unigram_bytes": train(
                folder, "unigram_bytes", corpus, model_type="unigram", vocab_size=600, byte_fallback=True,
                add_dummy_prefix=False, **kept),
        }
        data = {"texts": all_texts} | {name: entry(path, all_texts) for name, path in models.items()}
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=True, separators=(',', ':'))}"
             for key, value in data.items()]
    (DATA / "sentencepiece.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
