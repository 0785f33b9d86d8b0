#include "device/host/kernels/attention.h"

#include <cstring>
#include <string>

namespace ebb {

void check_documents(const AttentionOperands& operands) {
  if (operands.document_starts == nullptr) return;
  for (int64_t b = 0; b < operands.batch; ++b) {
    const int32_t* starts = operands.document_starts + b * operands.num_tokens;
    for (int64_t i = 0; i < operands.num_tokens; ++i) {
      const bool opens = starts[i] == i;
      const bool continues = i > 0 && starts[i] == starts[i - 1];
      EBB_CHECK(opens || continues, "attention: document start " + std::to_string(starts[i]) +
                                        " of token " + std::to_string(i) + " in row " +
                                        std::to_string(b) + " is neither the token itself nor " +
                                        "the start of the token before");
    }
  }
}

void check_positions(const AttentionOperands& operands) {
  for (int64_t b = 0; b < operands.batch; ++b) {
    const int32_t* positions = operands.positions + b * operands.num_tokens;
    for (int64_t i = 0; i < operands.num_tokens; ++i) {
      EBB_CHECK(
          positions[i] == positions[0] + i && positions[0] >= 0 && positions[i] < operands.capacity,
          "attention_cached: position " + std::to_string(positions[i]) + " of token " +
              std::to_string(i) + " in row " + std::to_string(b) +
              " does not follow the one before, or is none of the cache's " +
              std::to_string(operands.capacity));
    }
  }
}

void append_to_cache(const AttentionOperands& operands) {
  const auto size = static_cast<int64_t>(size_of(operands.dtype));
  const int64_t row = operands.qkv_columns() * size, kept = operands.key_columns() * size;
  const auto* from = static_cast<const std::byte*>(operands.qkv) + row - kept;
  for (int64_t i = 0; i < operands.batch * operands.num_tokens; ++i) {
    const int64_t to = i / operands.num_tokens * operands.capacity + operands.positions[i];
    std::memcpy(static_cast<std::byte*>(operands.cache) + to * kept, from + i * row,
                static_cast<size_t>(kept));
  }
}

}  // namespace ebb
