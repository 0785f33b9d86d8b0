// The planes of the training state: the arrays that are kept between steps.
//
// The ledger, the home, checkpoints, the state hash and the optimizer iterate over this list.
// Another optimizer would have another list. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "device/dtype.h"

namespace ebb {

/// One array of the state, with one entry for each element of the parameter space.
struct PlaneInfo {
  std::string_view name;  ///< static storage; checkpoints use this name
  size_t bits_per_element;
  bool is_weight;  ///< the device computes with this plane, so loads and stores copy it

  size_t bytes_per_element() const { return bits_per_element / 8; }
};

/// The planes of AdamW for weights of this type, the weight first. They have 12 bytes per
/// parameter, or 14 for fp16 weights, because an fp16 weight and 16 more bits cannot represent an
/// fp32 master. Momentum and variance are zero at first. Throws LogicError for types that are no
/// types of weights.
std::span<const PlaneInfo> state_planes(DType weight_type);

/// The bytes of all planes for one element.
size_t state_bytes_per_element(DType weight_type);

}  // namespace ebb
