// The label of what is not to be learned: such a row has no loss and no gradient. PyTorch's and
// transformers' value, and so that of label files.
#pragma once

#include <cstdint>

namespace ebb {

inline constexpr int32_t kIgnoredLabel = -100;

}  // namespace ebb
