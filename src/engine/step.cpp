#include "engine/step.h"

#include "core/error.h"

namespace ridge {

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
    }
    output[limits_.outputs + sequence] = static_cast<int32_t>(position) + 1;
    words_[0]++;
}

void StepBuffer::set_page(uint32_t sequence, uint32_t index, uint32_t page) {
    RIDGE_ASSERT(sequence < limits_.sequences && index < limits_.pages);
    words_[4 + 3 * size_t{limits_.tokens} + limits_.outputs + limits_.sequences + size_t{sequence} * limits_.pages +
           index] = static_cast<int32_t>(page);
}

}  // namespace ridge
