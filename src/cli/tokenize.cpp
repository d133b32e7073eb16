// ridge tokenize: what a model's vocabulary makes of a text, and back.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "gguf/gguf.h"
#include "gguf/printable.h"
#include "text/stream.h"
#include "text/tokenizer.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
    std::string model;
    std::string pre, family;
    std::string text;
    std::vector<int32_t> decode;
    bool special = false;
    bool ids_only = false;
    bool json = false;
};

// A token's bytes may be part of a character: for JSON, which holds only characters, that part becomes U+FFFD.
std::string as_characters(std::string_view bytes) {
    text::Utf8Stream stream;
    std::string characters = stream.feed(bytes);
    return characters + stream.finish();
}

std::string shown_whole(std::string_view text) { return gguf::printable(text, text.size()); }

void print_tokens(const text::Tokenizer &tokenizer, const std::vector<int32_t> &ids, size_t without_token,
                  const Options &options) {
    if (options.json) {
        Json tokens = Json::array();
        for (const int32_t id : ids) {
            tokens.push_back({{"id", id}, {"piece", as_characters(tokenizer.piece(id, true))}});
        }
        const Json all{{"count", ids.size()}, {"bytes_without_token", without_token}, {"tokens", tokens}};
        fmt::print("{}\n", all.dump());
    } else if (options.ids_only) {
        for (size_t i = 0; i < ids.size(); ++i) fmt::print("{}{}", i == 0 ? "" : " ", ids[i]);
        fmt::print("\n");
    } else {
        for (const int32_t id : ids) fmt::print("{:>7} '{}'\n", id, shown_whole(tokenizer.piece(id, true)));
        fmt::print("{} token{}\n", ids.size(), ids.size() == 1 ? "" : "s");
    }
    note_without_token(without_token);
}

void print_text(const text::Tokenizer &tokenizer, const Options &options) {
    const std::string bytes = tokenizer.decode(options.decode, options.special);
    if (options.json) {
        fmt::print("{}\n", Json{{"text", as_characters(bytes)}}.dump());
        return;
    }
    // The bytes as they are: the way back from `ridge tokenize`.
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    std::fputc('\n', stdout);
}

void tokenize(const Options &options, bool decodes, bool has_text) {
    if (decodes == has_text) {
        fail(ErrorKind::usage, "give either a TEXT (or - for standard input) or --decode ID...");
    }
    const gguf::File file = gguf::File::open(options.model);
    const auto tokenizer = text::Tokenizer::from(text::vocabulary_from_gguf(file, options.pre, options.family));
    if (decodes) {
        print_text(*tokenizer, options);
        return;
    }
    const std::string input = options.text == "-" ? read_all(stdin, "the standard input") : options.text;
    size_t without_token = 0;
    const std::vector<int32_t> ids =
        tokenizer->encode(input, {.add_special = true, .parse_special = options.special}, &without_token);
    print_tokens(*tokenizer, ids, without_token, options);
}

}  // namespace

void add_tokenize(CLI::App &app) {
    auto options = std::make_shared<Options>();
    CLI::App *cmd = app.add_subcommand("tokenize", "Show the tokens of a text, or the text of tokens");
    cmd->add_option("-m,--model", options->model, "The model, a GGUF file")->required()->type_name("FILE");
    CLI::Option *text = cmd->add_option("text", options->text, "The text; - reads standard input")->type_name("TEXT");
    CLI::Option *decode = cmd->add_option("--decode", options->decode, "Print the text of these tokens instead")
                              ->type_name("ID...")
                              ->expected(1, -1);
    add_tokenizer_flags(*cmd, options->pre, options->family);
    cmd->add_flag("--special", options->special,
                  "Take names of control tokens in the text for these tokens; with --decode, print them");
    cmd->add_flag("--ids", options->ids_only, "Print only the ids, on one line");
    cmd->add_flag("--json", options->json, "Print JSON");
    cmd->callback([options, text, decode] { tokenize(*options, decode->count() > 0, text->count() > 0); });
}

}  // namespace ridge
