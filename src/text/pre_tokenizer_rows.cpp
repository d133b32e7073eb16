// The pre-tokenizers by the names of GGUF files.
//
// The patterns are those of the tokenizer.json (or tiktoken) files that the models were published with, written for
// PCRE2. Those of these models were not at hand, and are cut as llama.cpp cuts them: a.x-4.0, chameleon, codeshell,
// exaone4, f2llmv2, falcon3, falcon-h1, gigachat, granite-docling, granite-embed-multi-97m, hunyuan, hunyuan-dense,
// hy_v4, jais, joyai-llm, kanana2, kormo, lfm2, megrez, mellum, mellum2, midm-2.0, minerva-7b, poro-chat, gpt3-finnish,
// solar-open, superbpe, talkie, trillion, ufakzeka, viking, youtu.
//
// What was rewritten, without changing a piece:
//
//   \s                     Unicode's White_Space, spelled out: PCRE2's takes U+180E too
//   Digits, Punctuation    steps of tokenizer.json that are no patterns, as their character classes
//   \p{..}&&[^\p{Han}]     PCRE2 has no intersection: the complement of the union of the complements
//   (?=(?:\d{3})*\b) etc.  looks ahead once per run of digits, where the original looks from every digit
//   \s*[\r\n], ?+, ++      spellings of the same matches
//
// No normalisation, added token or chunking of a published tokenizer is part of a row.
#include <array>

#include "text/pre_tokenizer.h"

namespace ridge::text {

namespace {

// White space, for use inside brackets.
#define SPACE R"(\t-\r\x{85}\p{Z})"
// White space up to the character before a word, then the rest.
#define BLANKS "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define LINE_ENDS "[" SPACE "]*[\\r\\n]+"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

// The contractions, words, numbers, punctuation and white space of GPT-2, each with the space before it.
constexpr std::string_view kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" BLANKS;

// cl100k and its followers: contractions in either case, a word takes along one sign of any kind, a line break ends a
// piece. They differ in how many digits make a piece.
#define WORDS(digits) \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|" LINE_ENDS "|" BLANKS

// o200k and its followers: a word ends where a capital follows a small letter; letters without case are both.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(upper, lower, suffix, digits, line_end)                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower "*" suffix \
    "|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+" line_end "*|" LINE_ENDS "|" BLANKS
constexpr std::string_view kO200k = CASED(UPPER, LOWER, CONTRACTIONS "?", "\\p{N}{1,3}", "[\\r\\n/]");

// A run of decimal digits in threes from its end, where it ends in `end`: what is left over comes first.
#define THREES(end) "(?<!\\p{Nd})\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*+(?!\\p{Nd})" end ")|\\G(?<=\\p{Nd})\\p{Nd}{3}"
// No word goes on. Oniguruma's word characters include circled letters, and of the numbers that are no digits those of
// Latin-1 and the letter numbers.
#define WORD_END                                                                \
    "(?![\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}" \
    "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}])"

// SuperBPE cuts a number before every three digits, counted from the end of its decimal digits. A piece goes from such
// a place to the next: three digits, and where no more follow, what is between them and the next place, which is past
// one or two digits where the next run has them left over. \K leaves the same of the first run to the piece before it.
constexpr std::string_view kBeforeThrees =
    "(?:(?<!\\p{Nd})\\p{Nd}{0,2}\\K(?=(?:\\p{Nd}{3})++(?!\\p{Nd}))|\\G(?<=\\p{Nd}))\\p{Nd}{3}"
    "(?:(?!\\p{Nd})\\P{Nd}*+(?:\\p{Nd}{1,2}+(?!\\p{Nd})\\P{Nd}*+)*+(?:\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})++(?!\\p{Nd})))?+)?";

// The ideographs and kana that DeepSeek names.
#define CJK "\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}"
constexpr std::string_view kCjk = "[" CJK "]+";
// The same up to Hangul, in DeepSeek's first models: all of U+0800 to U+9FA5.
constexpr std::string_view kCjkWide = "[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]+";
#define SIGN_THEN_LETTERS R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
#define LETTERS_AND_MARKS R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)"
constexpr std::string_view kDeepSeek3 = SIGN_THEN_LETTERS LETTERS_AND_MARKS "[\\r\\n]*|" LINE_ENDS "|" BLANKS;

// The letters with case of some Unicode version, as DeepSeek LLM lists them.
#define CASED_LETTERS                                                                                           \
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"      \
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"        \
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"         \
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})" \
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"  \
    R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"  \
    R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"  \
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134})"   \
    R"(\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"   \
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"  \
    R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})" \
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"        \
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"

// What is neither white space nor one of the signs that end a word in BLOOM, with the space before it.
constexpr std::string_view kBloom =
    " ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+";

// Each class a run of its own in AFMoE: ideographs and kana, Thai, Lao, Khmer, Burmese, Hangul.
constexpr std::string_view kAfmoeScripts =
    "[\\x{4E00}-\\x{9FFF}\\x{3040}-\\x{30FF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{FF65}-\\x{FF9F}\\x{2F00}-"
    "\\x{2FDF}]+|[\\x{E00}-\\x{E7F}]+|[\\x{E80}-\\x{EFF}]+|[\\x{1780}-\\x{17FF}]+|[\\x{1000}-\\x{109F}\\x{AA60}-"
    "\\x{AA7F}\\x{A9E0}-\\x{A9FF}]+|[\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+";

// White space in powers of two. A line end is not looked for behind a blank: the piece of that blank looked already.
#define NOT_BEFORE_SIGN "(?![^" SPACE "])"
constexpr std::string_view kJais2 = CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" SPACE
    "\\p{L}\\p{N}]+[\\r\\n]*|(?<![\\t\\x{B}\\f\\x{85}\\p{Z}])" LINE_ENDS "|[" SPACE "]{512}" NOT_BEFORE_SIGN "|[" SPACE
    "]{256}" NOT_BEFORE_SIGN "|[" SPACE "]{128}" NOT_BEFORE_SIGN "|[" SPACE "]{64}" NOT_BEFORE_SIGN "|[" SPACE
    "]{32}" NOT_BEFORE_SIGN "|[" SPACE "]{16}" NOT_BEFORE_SIGN "|[" SPACE "]{8}" NOT_BEFORE_SIGN "|[" SPACE
    "]{4}" NOT_BEFORE_SIGN "|[" SPACE "]{1,2}" NOT_BEFORE_SIGN "|[" SPACE "]";

// Letters but no ideographs, capital and small.
#define UPPER_NOT_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define LOWER_NOT_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"

const std::array kRows{
    PreTokenizerRow{.names = {"gpt-2", "phi-2", "mpt", "olmo", "roberta-bpe", "modern-bert", "jina-v1-en",
                              "jina-v2-code", "jina-v2-es", "jina-v2-de", "jina-es", "jina-de", "jais", "trillion",
                              "exaone4", "gigachat", "a.x-4.0", "mellum", "granite-docling"},
                    .patterns = {kGpt2}},
    // Every digit apart, then as GPT-2.
    PreTokenizerRow{
        .names = {"smollm", "starcoder", "refact", "command-r", "exaone", "codeshell", "minerva-7b", "mellum2"},
        .patterns = {"\\p{N}", kGpt2}},
    PreTokenizerRow{.names = {"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "grok-2", "bailingmoe",
                              "bailingmoe2", "llada-moe", "megrez", "kormo", "f2llmv2", "solar-open"},
                    .patterns = {WORDS("\\p{N}")}},
    // As qwen2, but marks belong to words.
    PreTokenizerRow{.names = {"qwen35"},
                    .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACE
                                              "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINE_ENDS "|" BLANKS}},
    PreTokenizerRow{.names = {"llama-bpe", "llama-v3", "llama3", "pixtral", "jina-v5-nano", "falcon3", "falcon-h1",
                              "midm-2.0", "lfm2"},
                    .patterns = {WORDS("\\p{N}{1,3}")},
                    .whole_pieces_first = true,
                    .add_bos = true},
    PreTokenizerRow{.names = {"glm4", "glm5"}, .patterns = {WORDS("\\p{N}{1,3}")}, .whole_pieces_first = true},
    PreTokenizerRow{.names = {"dbrx", "smaug-bpe", "chatglm-bpe"}, .patterns = {WORDS("\\p{N}{1,3}")}},
    PreTokenizerRow{.names = {"minicpm5"}, .patterns = {"\\p{N}{1,3}", WORDS("\\p{N}+")}},
    // As qwen2, but line breaks do not join the signs before them.
    PreTokenizerRow{.names = {"seed-coder"},
                    .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACE
                                              "\\p{L}\\p{N}\\r\\n]+|" LINE_ENDS "|" BLANKS}},
    // As qwen2 without contractions: Turkish suffixes follow an apostrophe.
    PreTokenizerRow{.names = {"ufakzeka"},
                    .patterns = {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|" LINE_ENDS
                                 "|" BLANKS}},
    PreTokenizerRow{.names = {"jais-2"}, .patterns = {kJais2}},
    // Words with single spaces between them are one piece.
    PreTokenizerRow{.names = {"exaone-moe"},
                    .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}[\\p{L}\\p{M}]*+(?: "
                                              "\\p{L}[\\p{L}\\p{M}]*+)*+|\\p{N}| ?[^" SPACE
                                              "\\p{L}\\p{N}]+[\\r\\n/]?|[" SPACE "]*[\\r\\n]|" BLANKS}},
    // A run of line breaks begins a piece, which the second pattern cuts. llama.cpp keeps the breaks apart.
    PreTokenizerRow{.names = {"laguna"}, .patterns = {"(?:\\r?\\n)++(?:[^\\r\\n]++|\\r(?!\\n))*+", WORDS("\\p{N}")}},

    // llama.cpp takes every letter outside A-Z for small and outside a-z for a capital, and leaves marks out.
    PreTokenizerRow{.names = {"gpt-4o", "llama4", "minimax-m2", "kanana2", "talkie"}, .patterns = {kO200k}},
    PreTokenizerRow{.names = {"granite-embed-multi-97m"}, .patterns = {kO200k}, .whole_pieces_first = true},
    PreTokenizerRow{.names = {"tekken"},
                    .patterns = {CASED(UPPER, LOWER, "", "\\p{N}", "[\\r\\n/]")},
                    .whole_pieces_first = true,
                    .add_bos = true},
    PreTokenizerRow{.names = {"tiny_aya", "cohere2moe"}, .patterns = {THREES(WORD_END), kO200k}},
    // Hangul, signs of East Asia, Bopomofo and ideographs are runs of their own.
    PreTokenizerRow{.names = {"youtu"},
                    .patterns = {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}"
                                 "\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-"
                                 "\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|[" CJK "]+",
                                 CASED(UPPER, LOWER, CONTRACTIONS "?", "\\p{N}", "[\\r\\n/]")},
                    .whole_pieces_first = true},
    // Ideographs are runs of their own; of other letters as o200k, without its slash.
    PreTokenizerRow{
        .names = {"kimi-k2"},
        .patterns = {"\\p{sc:Han}+|" CASED(UPPER_NOT_HAN, LOWER_NOT_HAN, CONTRACTIONS "?", "\\p{N}{1,3}", "[\\r\\n]")},
        .whole_pieces_first = true},

    // The signs of the third pattern include the letters A to Z, so a word of more letters than these is cut again.
    PreTokenizerRow{.names = {"deepseek-llm"},
                    .patterns = {"[\\r\\n]", "[" SPACE "]?[" CASED_LETTERS "]+",
                                 "[" SPACE "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
                                 "\\x{3000}-\\x{3002}]+",
                                 "(?<![" SPACE "])[" SPACE "]+\\z", kCjkWide, "\\p{N}"}},
    PreTokenizerRow{.names = {"deepseek-coder"},
                    .patterns = {"[\\r\\n]", "[" SPACE "]?\\p{L}+", "[" SPACE "]?\\p{P}+", kCjkWide, "\\p{N}"}},
    PreTokenizerRow{.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
                    .patterns = {"\\p{N}{1,3}", kCjk, kDeepSeek3}},
    PreTokenizerRow{
        .names = {"spark2_5"},
        .patterns = {"\\p{N}{1,3}", kCjk, SIGN_THEN_LETTERS LETTERS_AND_MARKS "|[\\r\\n]|" BLANKS, "\\p{N}"}},
    PreTokenizerRow{.names = {"afmoe"}, .patterns = {THREES(""), kAfmoeScripts, kDeepSeek3}},

    // The last two steps of the original see the byte alphabet, in which the bytes B2 B3 B9 BC BD BE are written as the
    // characters of that number: ² ³ ¹ ¼ ½ ¾, which are numbers, and end a piece within a character.
    PreTokenizerRow{.names = {"falcon"},
                    .patterns = {"[!-/:-@\\[-`{-~\\p{P}]+", kGpt2},
                    .byte_patterns = {"[0-9\\xB2\\xB3\\xB9\\xBC-\\xBE]+", "[0-9][0-9][0-9]"}},
    PreTokenizerRow{.names = {"bloom", "poro-chat", "gpt3-finnish"}, .patterns = {kBloom}},
    PreTokenizerRow{.names = {"viking"}, .patterns = {kBloom, "\\p{N}"}},
    PreTokenizerRow{.names = {"chameleon"},
                    .patterns = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
                                 "[!-/:-@\\[-`{-~\\p{P}]", kGpt2},
                    .add_bos = true},
    PreTokenizerRow{.names = {"superbpe"}, .patterns = {"\\p{N}+", kBeforeThrees}},
};

}  // namespace

std::span<const PreTokenizerRow> pre_tokenizer_rows() { return kRows; }

}  // namespace ridge::text
