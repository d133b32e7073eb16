// The table of architectures, and the way from a file to its program.
#include "model/model.h"

#include <unordered_set>

#include "core/error.h"
#include "model/builder.h"
#include "model/rope.h"

namespace ridge {

#define ARCHITECTURE(name, id, ...) void build_##id(Builder &);
#include "model/architectures.def"

const std::vector<Architecture> &architectures() {
    static const std::vector<Architecture> list = {
#define ARCHITECTURE(arch, id, ...) {.name = arch, .build = build_##id __VA_OPT__(, ) __VA_ARGS__},
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
    std::unordered_set<std::string_view> used;
    // Factors are in the frequencies of the rope tables.
    for (const Node &n : program.nodes) {
        const RopeTable *table = std::get_if<RopeTable>(&n.op);
        if (table == nullptr) continue;
        if (table->long_frequency.empty())
            used.insert(kRopeFactors);
        else
            used.insert({kRopeShort, kRopeLong});
    }
    // A part of a matrix is named after the whole.
    const auto whole = [](std::string_view name) { return name.substr(0, name.find('[')); };
    for (const Weight &w : program.weights) used.insert(whole(w.name));
    std::vector<std::string> unused;
    for (const gguf::Tensor &t : file.tensors())
        if (!used.contains(t.name)) unused.emplace_back(t.name);
    return unused;
}

}  // namespace ridge
