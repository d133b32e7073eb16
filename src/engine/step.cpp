#include "engine/step.h"

#include <bit>

#include "core/error.h"

namespace ridge {

Draw StepView::draw(uint32_t output) const {
    const int32_t *w = draws() + size_t{kDrawWords} * output;
    const auto low = static_cast<uint32_t>(w[4]), high = static_cast<uint32_t>(w[5]);
    return {std::bit_cast<float>(w[0]), std::bit_cast<float>(w[1]), std::bit_cast<float>(w[2]),
            static_cast<uint32_t>(w[3]), std::bit_cast<double>(uint64_t{high} << 32 | low)};
}

void StepBuffer::add(int32_t token, uint32_t position, uint32_t sequence, bool wanted) {
    const auto i = static_cast<uint32_t>(words_[0]);
    RIDGE_ASSERT(i < limits_.tokens && sequence < limits_.sequences && position / kPageTokens < limits_.pages);
    int32_t *tokens = words_.data() + 4;
    tokens[i] = token;
    tokens[limits_.tokens + i] = static_cast<int32_t>(position);
    tokens[2 * size_t{limits_.tokens} + i] = static_cast<int32_t>(sequence);
    int32_t *output = tokens + 3 * size_t{limits_.tokens};
    if (wanted) {
        RIDGE_ASSERT(static_cast<uint32_t>(words_[1]) < limits_.outputs);
        output[words_[1]++] = static_cast<int32_t>(i);
        set_draw(static_cast<uint32_t>(words_[1]) - 1, {});
    }
    output[limits_.outputs + sequence] = static_cast<int32_t>(position) + 1;
    words_[0]++;
}

void StepBuffer::set_page(uint32_t sequence, uint32_t index, uint32_t page) {
    RIDGE_ASSERT(sequence < limits_.sequences && index < limits_.pages);
    words_[4 + 3 * size_t{limits_.tokens} + limits_.outputs + limits_.sequences + size_t{sequence} * limits_.pages +
           index] = static_cast<int32_t>(page);
}

void StepBuffer::set_draw(uint32_t output, const Draw &d) {
    RIDGE_ASSERT(output < static_cast<uint32_t>(words_[1]));
    int32_t *w = words_.data() + (view().draws() - words_.data()) + size_t{kDrawWords} * output;
    const auto uniform = std::bit_cast<uint64_t>(d.uniform);
    w[0] = std::bit_cast<int32_t>(d.temperature);
    w[1] = std::bit_cast<int32_t>(d.top_p);
    w[2] = std::bit_cast<int32_t>(d.min_p);
    w[3] = static_cast<int32_t>(d.top_k);
    w[4] = static_cast<int32_t>(uniform);
    w[5] = static_cast<int32_t>(uniform >> 32);
}

}  // namespace ridge
