#include "op/op.h"

namespace ridge {

std::string_view op_name(OpKind k) {
    return []<size_t... I>(OpKind kind, std::index_sequence<I...>) {
        std::string_view found = "?";
        ((kind == I ? (found = std::variant_alternative_t<I, Op>::kName, 0) : 0), ...);
        return found;
    }
    (k, std::make_index_sequence<kOpKinds>{});
}

ValueId published(const Op &op) {
    return std::visit(
        [](const auto &o) {
            if constexpr (requires { o.q8; })
                return o.q8;
            else
                return kNone;
        },
        op);
}

}  // namespace ridge
