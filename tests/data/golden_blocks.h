// Reader of golden_blocks.bin, whose layout tools/make_golden_blocks.py describes.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ridge::test {

struct GoldenBlocks {
    std::string name;
    uint32_t ggml_type;
    unsigned block_weights, block_bytes;
    size_t count;                      // blocks
    std::vector<unsigned char> bytes;  // (count, block_bytes)
    std::vector<float> values;         // (count, block_weights)
};

// Throws where the file is absent or its size is not what its header says.
inline std::vector<GoldenBlocks> read_golden_blocks() {
    const std::string path = RIDGE_TEST_DATA "/golden_blocks.bin";
    std::ifstream in(path, std::ios::binary);
    std::string line;
    if (!std::getline(in, line) || !line.starts_with("ridge golden blocks 1"))
        throw std::runtime_error(path + " is missing or is not version 1");
    std::vector<GoldenBlocks> list;
    while (std::getline(in, line) && !line.empty()) {
        GoldenBlocks g;
        std::istringstream fields(line);
        if (!(fields >> g.name >> g.ggml_type >> g.block_weights >> g.block_bytes >> g.count))
            throw std::runtime_error(path + ": malformed line: " + line);
        list.push_back(std::move(g));
    }
    for (GoldenBlocks &g : list) {
        g.bytes.resize(g.count * g.block_bytes);
        g.values.resize(g.count * g.block_weights);
        in.read(reinterpret_cast<char *>(g.bytes.data()), static_cast<std::streamsize>(g.bytes.size()));
        in.read(reinterpret_cast<char *>(g.values.data()),
                static_cast<std::streamsize>(g.values.size() * sizeof(float)));
        if (!in) throw std::runtime_error(path + " ends inside " + g.name);
    }
    if (in.peek() != std::ifstream::traits_type::eof()) throw std::runtime_error(path + " has bytes left over");
    return list;
}

}  // namespace ridge::test
