"""What published tokenizers make of a text under the vocabulary of a GGUF file.

`reference` gives two functions, text -> ids: for plain text, and for text in which control tokens are found (None where
nothing published says what the ids are). They are made of PyPI packages alone:

    gpt2      `tokenizers`, with the pre-tokenizer that the model was published with (published_pre_tokenizers.py);
              `tiktoken` for models that were published for it
    gemma4    `tokenizers`, as Gemma's tokenizer.json has it
    llama     `sentencepiece`, from a model that is written here from tokens, types and scores;
              `tokenizers` for Phi-3, and for control tokens in text under Llama 2's vocabulary, which their
              tokenizer.json files find first: what lies between them is a text of its own
    t5        `sentencepiece`, with the normalisation of the file

The NFC normalisation that some tokenizer.json files ask for is left out: engines that read GGUF apply none.
Control tokens in text are no matter of sentencepiece: the others of the last two have a reference for plain text only.
"""
import tiktoken
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from published_pre_tokenizers import O200K, PRE_TOKENIZERS, TEKKEN, QWEN35

# Rows of published_pre_tokenizers.py by further names.
ALIASES = {"command-r": "smollm", "refact": "smollm", "starcoder": "smollm", "mpt": "gpt-2"}

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def with_added_tokens(tokenizer, tokens, types, parse_special, strips_after=()):
    def of(*kinds):
        return [t for t, k in zip(tokens, types) if k in kinds]

    def as_added(token, special):
        return AddedToken(token, normalized=False, special=special, rstrip=token in strips_after)
    tokenizer.add_tokens([as_added(t, False) for t in of(USER_DEFINED)])
    if parse_special:
        tokenizer.add_special_tokens([as_added(t, True) for t in of(CONTROL, UNKNOWN)])
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def pairs(merges):
    return [tuple(m.split(" ")) for m in merges]


def byte_level_bpe(tokens, types, merges, pre, parse_special, whole_pieces_first=False):
    """A tokenizer from the lists of a GGUF file, which knows control tokens in text only where asked."""
    vocabulary = {t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs(merges), ignore_merges=whole_pieces_first))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[ALIASES.get(pre, pre)]
    tokenizer.decoder = decoders.ByteLevel()
    return with_added_tokens(tokenizer, tokens, types, parse_special)


BYTES = {symbol: bytes([byte]) for byte, symbol in enumerate(
    chr(b) if 0x21 <= b <= 0x7E or 0xA1 <= b and b != 0xAD else None for b in range(256)) if symbol}
BYTES |= {chr(0x100 + i): bytes([b]) for i, b in enumerate(b for b in range(256) if chr(b) not in BYTES)}


def ranks(tokens, types, pattern):
    """tiktoken's form: tokens by rank, which is their order, and control tokens by id."""
    normal = [i for i, k in enumerate(types) if k == NORMAL]
    first = normal[0]
    encoding = tiktoken.Encoding(
        "vocabulary", pat_str=pattern,
        mergeable_ranks={b"".join(BYTES[c] for c in tokens[i]): i - first for i in normal},
        special_tokens={tokens[i]: 1 << 30 | i for i, k in enumerate(types) if k == CONTROL})
    ids = lambda encoded: [i & ~(1 << 30) if i >> 30 else i + first for i in encoded]
    return (lambda text: ids(encoding.encode_ordinary(text)),
            lambda text: ids(encoding.encode(text, allowed_special="all")))


def gemma4(tokens, types, merges, parse_special):
    vocabulary = {t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs(merges), byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return with_added_tokens(tokenizer, tokens, types, parse_special)


def merges_of(tokens, types, scores):
    """All ways to make a token of two, the best score first: how transformers converts a sentencepiece model."""
    ids = {t: i for i, t in enumerate(tokens)}
    merges = []
    for token, kind, score in zip(tokens, types, scores):
        if kind in (NORMAL, USER_DEFINED):
            ways = [(token[:i], token[i:]) for i in range(1, len(token))]
            merges += [(-score, left, right) for left, right in sorted(
                (w for w in ways if w[0] in ids and w[1] in ids), key=lambda w: (ids[w[0]], ids[w[1]]))]
    merges.sort(key=lambda m: m[0])
    return [(left, right) for _, left, right in merges]


# Control tokens of Phi-3 take the white space after them with them; these do not.
PHI3_KEEP_SPACES = ("<unk>", "<s>", "<|endoftext|>")


def converted_pieces(tokens, types, merges, parse_special, phi3):
    vocabulary = {t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strips_after = [t for t, k in zip(tokens, types) if k in (CONTROL, USER_DEFINED) and t not in PHI3_KEEP_SPACES]
    return with_added_tokens(tokenizer, tokens, types, parse_special, strips_after if phi3 else ())


def sentence_pieces(tokens, types, scores, unigram, add_space, remove_extra_spaces, charsmap):
    """A sentencepiece model. It allows one unknown token; others that a file calls so are never found in text."""
    model = sentencepiece_model_pb2.ModelProto()
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    unknown = [i for i, k in enumerate(types) if k == UNKNOWN][:1] or [tokens.index("<unk>")]
    for i, (token, kind, score) in enumerate(zip(tokens, types, scores)):
        piece = model.pieces.add()
        # Files write the runs of spaces among the user-defined tokens as what they stand for.
        piece.piece = token.replace(" ", "▁") if kind == USER_DEFINED else token
        piece.score = score
        piece.type = kinds.UNKNOWN if i in unknown else kinds.CONTROL if kind == UNKNOWN else kind
    trainer = model.trainer_spec
    trainer.model_type = trainer.UNIGRAM if unigram else trainer.BPE
    trainer.vocab_size = len(tokens)
    trainer.unk_id, trainer.unk_piece = unknown[0], tokens[unknown[0]]
    trainer.bos_id = trainer.eos_id = trainer.pad_id = -1
    trainer.byte_fallback = BYTE in types
    normalizer = model.normalizer_spec
    normalizer.name = "from the file" if charsmap else "identity"
    normalizer.precompiled_charsmap = charsmap
    normalizer.add_dummy_prefix = add_space
    normalizer.remove_extra_whitespaces = remove_extra_spaces
    processor = SentencePieceProcessor(model_proto=model.SerializeToString())
    return lambda text: processor.encode(text)


# The patterns of models that were published for tiktoken, by pre-tokenizer.
TIKTOKEN = {"llama4": O200K, "tekken": TEKKEN, "qwen35": QWEN35}


def reference(field, pre, published=None):
    """(name of the package, plain text -> ids, text with control tokens -> ids or None)."""
    tokens, kind = field("tokens"), field("model")
    types = field("token_type")
    if published == "tiktoken":
        return "tiktoken", *ranks(tokens, types, TIKTOKEN[pre])
    if kind == "gpt2":
        whole_pieces_first = pre == "llama-bpe"  # ignore_merges in its tokenizer.json
        plain, special = (byte_level_bpe(tokens, types, field("merges"), pre, p, whole_pieces_first)
                          for p in (False, True))
        return "tokenizers", plain, special
    if kind == "gemma4":
        plain, special = (gemma4(tokens, types, field("merges"), p) for p in (False, True))
        return "tokenizers", plain, special
    if published in ("llama 2", "phi-3"):
        merges = merges_of(tokens, types, field("scores"))
        plain, special = (converted_pieces(tokens, types, merges, p, published == "phi-3") for p in (False, True))
        if published == "phi-3":
            return "tokenizers", plain, special
    else:
        special = None
    unigram = kind == "t5"
    yes = lambda key, default: default if field(key) is None else field(key)
    plain = sentence_pieces(tokens, types, field("scores"), unigram, yes("add_space_prefix", True),
                            yes("remove_extra_whitespaces", unigram),
                            bytes(field("precompiled_charsmap") or []))
    return "sentencepiece", plain, special
