// Tokenizes texts with llama.cpp, for make_tokenizer_reference.py. Built against a build of llama.cpp, of which the
// source distribution of llama-cpp-python has the sources:
//
//     g++ -O1 -std=c++17 -I$LLAMA/include -I$LLAMA/ggml/include tools/llama_cpp_ids.cpp -o llama_cpp_ids $LIBRARIES
//
// llama_cpp_ids VOCABULARY.gguf reads (u32 size, bytes, u8 whether control tokens are found)... and writes one line of
// ids for each.
#include <llama.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

int main(int, char **argv) {
    llama_log_set(
        [](ggml_log_level level, const char *text, void *) {
            if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    llama_backend_init();
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    const llama_model *model = llama_model_load_from_file(argv[1], params);
    if (model == nullptr) return 1;
    const llama_vocab *vocab = llama_model_get_vocab(model);
    for (uint32_t size = 0; std::fread(&size, sizeof size, 1, stdin) == 1;) {
        std::string text(size, '\0');
        uint8_t special = 0;
        if (std::fread(text.data(), 1, size, stdin) != size || std::fread(&special, 1, 1, stdin) != 1) return 1;
        std::vector<llama_token> ids(2 * text.size() + 16);
        const int count = llama_tokenize(vocab, text.data(), static_cast<int>(size), ids.data(),
                                         static_cast<int>(ids.size()), false, special != 0);
        if (count < 0) return 1;
        for (int i = 0; i < count; ++i) std::printf("%d ", ids[i]);
        std::printf("\n");
    }
}
