// The label of rows that are ignored: such a row has no loss and no gradient. PyTorch, transformers
// and label files use the same value.
#pragma once

#include <cstdint>

namespace ebb {

inline constexpr int32_t kIgnoredLabel = -100;

}  // namespace ebb
