// The table of architectures, and the way from a file to its program.
#include "model/model.h"

#include <unordered_set>

#include "core/error.h"
#include "model/builder.h"

namespace ridge {

#define ARCHITECTURE(name, has_experts) void build_##name(Builder &);
#include "model/architectures.def"

const std::vector<Architecture> &architectures() {
    static const std::vector<Architecture> list = {
#define ARCHITECTURE(name, has_experts) {#name, has_experts, build_##name},
#include "model/architectures.def"
    };
    return list;
}

const Architecture &architecture_of(const gguf::File &file) {
    const std::string_view name = file.get_string("general.architecture");
    for (const Architecture &a : architectures())
        if (a.name == name) return a;
    std::vector<std::string_view> names;
    for (const Architecture &a : architectures()) names.push_back(a.name);
    fail(ErrorKind::unsupported, "{}: general.architecture is {}; supported are {}", file.paths().front().string(),
         gguf::preview(*file.find("general.architecture")), fmt::join(names, ", "));
}

Program build_program(const gguf::File &file, const ModelOptions &options) {
    const Architecture &a = architecture_of(file);
    const Hparams h = read_hparams(file);
    Builder b(file, h, options);
    a.build(b);
    Program p = b.take();
    check(p);
    return p;
}

std::vector<std::string> unused_tensors(const gguf::File &file, const Program &program) {
    // Its factors are in the frequencies of the rope table.
    std::unordered_set<std::string_view> used{"rope_freqs.weight"};
    for (const Weight &w : program.weights) used.insert(w.name);
    std::vector<std::string> unused;
    for (const gguf::Tensor &t : file.tensors())
        if (!used.contains(t.name)) unused.emplace_back(t.name);
    return unused;
}

}  // namespace ridge
