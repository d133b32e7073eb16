"""The pre-tokenizers of published models as objects of the package `tokenizers`, by the names of GGUF files.

Written as the tokenizer.json files have them (kimi-k2: as tokenization_kimi.py has its pattern), in their own syntax,
Oniguruma's: nothing here is shared with the patterns of src/text/pre_tokenizer_rows.cpp, which are compared with it.
One entry per row of that file; the name is the row's first.
"""
from tokenizers import Regex, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cl100k(digits):
    return CL100K.replace("DIGITS", digits)


def cased(suffix, digits, upper=UPPER, lower=LOWER, line_end=r"[\r\n/]*"):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{suffix}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{suffix}"
            rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+{line_end}|\s*[\r\n]+|\s+(?!\S)|\s+")


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = cased(CONTRACTIONS, r"\p{N}{1,3}")
TEKKEN = cased("", r"\p{N}")
QWEN35 = cl100k(r"\p{N}").replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"\s\p{L}", r"\s\p{L}\p{M}")
NOT_HAN = r"&&[^\p{Han}]]"
KIMI = r"[\p{Han}]+|" + cased(CONTRACTIONS, r"\p{N}{1,3}", UPPER[:-1] + NOT_HAN, LOWER[:-1] + NOT_HAN, r"[\r\n]*")

DEEPSEEK_CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
DEEPSEEK_CJK_WIDE = "[一-龥ࠀ-一가-퟿]+"
DEEPSEEK_SIGN = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
DEEPSEEK_LETTERS = "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
DEEPSEEK3 = DEEPSEEK_SIGN + "|" + DEEPSEEK_LETTERS + "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
SPARK = DEEPSEEK_SIGN + "|" + DEEPSEEK_LETTERS + "| ?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+"
CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")

AFMOE_SCRIPTS = (
    r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+"
    r"|[\u0E00-\u0E7F]+|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+"
    r"|[\uAC00-\uD7AF\u1100-\u11FF]+)")
YOUTU_SCRIPTS = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
JAIS2_BLANKS = "|".join(rf"\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=use_regex)


def chain(*steps, use_regex=False):
    """Patterns and steps one after the other, each on the pieces of the one before, then the byte alphabet."""
    return pre_tokenizers.Sequence([split(s) if isinstance(s, str) else s for s in steps] + [byte_level(use_regex)])


DIGIT_APART = pre_tokenizers.Digits(individual_digits=True)

PRE_TOKENIZERS = {
    "gpt-2": byte_level(True),
    "smollm": chain(DIGIT_APART, use_regex=True),
    "qwen2": chain(cl100k(r"\p{N}")),
    "qwen35": chain(QWEN35),
    "llama-bpe": chain(cl100k(r"\p{N}{1,3}")),
    "glm4": chain(cl100k(r"\p{N}{1,3}")),
    "dbrx": chain(cl100k(r"\p{N}{1,3}")),
    "minicpm5": chain(r"\p{N}{1,3}", cl100k(r"\p{N}+")),
    "seed-coder": chain(cl100k(r"\p{N}{1}").replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")),
    "ufakzeka": chain(cl100k(r"\p{N}").partition("|[")[2].join(["[", ""])),
    "jais-2": chain(cl100k(r"\p{N}{1,3}").replace(r"\s+(?!\S)|\s+", JAIS2_BLANKS + r"|\s{1}")),
    "exaone-moe": chain(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"),
    "laguna": chain(split(r"(?:\r?\n)+(?!\r?\n)", "merged_with_next"), cl100k(r"\p{N}")),
    "gpt-4o": chain(O200K),
    "granite-embed-multi-97m": chain(O200K),
    "tekken": chain(TEKKEN),
    "tiny_aya": chain(r"\d{1,3}(?=(?:\d{3})*\b)", O200K),
    "youtu": chain(YOUTU_SCRIPTS, cased(CONTRACTIONS, r"\p{N}")),
    "kimi-k2": chain(KIMI),
    "deepseek-llm": chain("[\r\n]", rf"\s?[{CASED_LETTERS}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$",
                          DEEPSEEK_CJK_WIDE, DIGIT_APART),
    "deepseek-coder": chain("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK_WIDE, DIGIT_APART),
    "deepseek-v3": chain(r"\p{N}{1,3}", DEEPSEEK_CJK, DEEPSEEK3),
    "spark2_5": chain(r"\p{N}{1,3}", DEEPSEEK_CJK, SPARK, DIGIT_APART),
    "afmoe": chain(r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}", r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)",
                   r"\A\p{Nd}{3}|\G\p{Nd}{3}", AFMOE_SCRIPTS, DEEPSEEK3),
    "falcon": pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(individual_digits=False),
        split("[0-9][0-9][0-9]")]),
    "bloom": chain(BLOOM),
    "viking": chain(BLOOM, DIGIT_APART),
    "chameleon": chain(r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\t\n]|    |  )", DIGIT_APART,
                       pre_tokenizers.Punctuation("isolated"), use_regex=True),
    "superbpe": chain(r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
}
