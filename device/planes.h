// The planes of a parameter's state: the arrays that stay between steps.
//
// Ledger, host memory, checkpoint, state hash and optimizer iterate over this list. A new optimizer
// gives another list.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "device/dtype.h"

namespace ebb {

/// One array of the state, with one entry for each parameter.
struct PlaneInfo {
  std::string_view name;  ///< static storage; also the name in checkpoints
  size_t bits_per_element;
  bool is_weight;  ///< the device computes with this plane, so copies touch it

  size_t bytes_per_element() const { return bits_per_element / 8; }
};

/// The planes of AdamW for weights of this type, the weight first: 12 bytes a parameter, or 14 for
/// fp16 weights, because no 16 further bits make an fp32 master of an fp16 weight. Momentum and
/// variance start as zeros. Throws LogicError for types that cannot be trained.
std::span<const PlaneInfo> state_planes(DType weight_type);

/// The bytes of all planes for one parameter.
size_t state_bytes_per_element(DType weight_type);

}  // namespace ebb
