// Attention on the host, computed in tiles of queries times tiles of keys.
//
// The width of tiles is fixed, tiles are computed in ascending order, and only one task writes each
// output row. So results depend only on values and shapes. Softmax statistics and all sums are
// fp32.
#pragma once

#include <cstdint>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

namespace ebb {

inline constexpr int64_t kTile = 64;  // queries and keys

inline int64_t padded_head(const AttentionOperands& operands) {
  return round_up(operands.head_size, 16);
}
inline int64_t padded_tokens(const AttentionOperands& operands) {
  return round_up(operands.num_tokens, kTile);
}

/// Checks the document starts, which come from data. Throws LogicError if they do not describe
/// consecutive documents.
void check_documents(const AttentionOperands& operands);
/// Checks the positions, which come from data. Throws LogicError if they are not consecutive or
/// exceed the cache.
void check_positions(const AttentionOperands& operands);
/// Copies the keys and values of qkv to their rows of the cache.
void append_to_cache(const AttentionOperands& operands);

}  // namespace ebb
