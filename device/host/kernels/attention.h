// Attention on the host, a tile of queries times a tile of keys at a time.
//
// The tile width is fixed, tiles are visited in ascending order, and one task owns each output row,
// so results depend on values and shapes alone. Softmax statistics and all sums are fp32.
#pragma once

#include <cstdint>

#include "device/attention_call.h"
#include "device/host/kernels/host_kernels.h"

namespace ebb {

inline constexpr int64_t kTile = 64;  // queries and keys

inline int64_t padded_head(const AttentionOperands& operands) {
  return round_up(operands.head_size, 16);
}
inline int64_t padded_tokens(const AttentionOperands& operands) {
  return round_up(operands.num_tokens, kTile);
}

/// Document starts come from data; throws LogicError where one does not describe documents laid end
/// to end.
void check_documents(const AttentionOperands& operands);
/// The same of positions, which must follow one another inside the cache.
void check_positions(const AttentionOperands& operands);
/// Keys and values of qkv go to their rows of the cache.
void append_to_cache(const AttentionOperands& operands);

}  // namespace ebb
