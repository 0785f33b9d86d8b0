#include "device/host/kernels/attention.h"

#include <cstring>
#include <string>

namespace ebb {

void check_documents(const AttentionCall& call) {
  if (call.document_starts == nullptr) return;
  for (int64_t b = 0; b < call.batch; ++b) {
    const int32_t* starts = call.document_starts + b * call.num_tokens;
    for (int64_t i = 0; i < call.num_tokens; ++i) {
      const bool opens = starts[i] == i;
      const bool continues = i > 0 && starts[i] == starts[i - 1];
      EBB_CHECK(opens || continues, "attention: document start " + std::to_string(starts[i]) +
                                        " of token " + std::to_string(i) + " in row " +
                                        std::to_string(b) + " is neither the token itself nor " +
                                        "the start of the token before");
    }
  }
}

void check_positions(const AttentionCall& call) {
  for (int64_t b = 0; b < call.batch; ++b) {
    const int32_t* positions = call.positions + b * call.num_tokens;
    for (int64_t i = 0; i < call.num_tokens; ++i) {
      EBB_CHECK(
          positions[i] == positions[0] + i && positions[0] >= 0 && positions[i] < call.capacity,
          "attention_cached: position " + std::to_string(positions[i]) + " of token " +
              std::to_string(i) + " in row " + std::to_string(b) +
              " does not follow the one before, or is none of the cache's " +
              std::to_string(call.capacity));
    }
  }
}

void append_to_cache(const AttentionCall& call) {
  const auto size = static_cast<int64_t>(size_of(call.dtype));
  const int64_t row = call.qkv_columns() * size, kept = call.key_columns() * size;
  const auto* from = static_cast<const std::byte*>(call.qkv) + row - kept;
  for (int64_t i = 0; i < call.batch * call.num_tokens; ++i) {
    const int64_t to = i / call.num_tokens * call.capacity + call.positions[i];
    std::memcpy(static_cast<std::byte*>(call.cache) + to * kept, from + i * row,
                static_cast<size_t>(kept));
  }
}

}  // namespace ebb
