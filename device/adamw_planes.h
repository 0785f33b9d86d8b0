// The planes of AdamW: the rows of state_planes(), and the pointers with which kernels access them.
// The kernels of AdamW and the table's own source use this file; all other code iterates over the
// rows.
#pragma once

#include <array>
#include <type_traits>

#include "device/dtype.h"
#include "device/planes.h"
#include "device/update_sizes.h"

namespace ebb {

/// bf16 weights: the weight and the low half together are the master (device/split_master.h).
inline constexpr std::array kSplitPlanes = {
    PlaneInfo{.name = "weight",
              .type = DType::BF16,
              .bytes_per_group = 2,
              .is_copied = true,
              .holds_master = true},
    PlaneInfo{.name = "low", .type = DType::I16, .bytes_per_group = 2, .holds_master = true},
    PlaneInfo{.name = "momentum", .type = DType::F32, .bytes_per_group = 4},
    PlaneInfo{.name = "variance", .type = DType::F32, .bytes_per_group = 4},
};
/// fp16 weights: the weight is the rounded master (Inf from 65520 on), which an update only writes.
inline constexpr std::array kWholePlanes = {
    PlaneInfo{.name = "weight",
              .type = DType::F16,
              .bytes_per_group = 2,
              .is_copied = true,
              .holds_master = true,
              .is_read_by_update = false},
    PlaneInfo{.name = "master", .type = DType::F32, .bytes_per_group = 4, .holds_master = true},
    PlaneInfo{.name = "momentum", .type = DType::F32, .bytes_per_group = 4},
    PlaneInfo{.name = "variance", .type = DType::F32, .bytes_per_group = 4},
};
/// fp32 weights: the weight is the master.
inline constexpr std::array kFloatPlanes = {
    PlaneInfo{.name = "weight",
              .type = DType::F32,
              .bytes_per_group = 4,
              .is_copied = true,
              .holds_master = true},
    PlaneInfo{.name = "momentum", .type = DType::F32, .bytes_per_group = 4},
    PlaneInfo{.name = "variance", .type = DType::F32, .bytes_per_group = 4},
};

/// The most outliers of kUndoElements elements in an undo log: momentum, variance and master of
/// each element, which are the planes of fp32 weights.
inline constexpr uint32_t kMostOutliersTogether = kFloatPlanes.size() * kUndoElements;

/// The element type of the plane that completes a weight to its master: the low half of bf16
/// weights, or the master itself for fp16. fp32 weights need no such plane.
template <class Weight>
using Remainder = std::conditional_t<std::is_same_v<Weight, F16>, float, int16_t>;

/// Consecutive elements of each plane.
template <class Weight, class Gradient>
struct AdamWView {
  Weight* weight;
  Remainder<Weight>* remainder;  ///< null for fp32 weights
  float* momentum;
  float* variance;
  const Gradient* gradient;
};

/// Gives the rows of the table their names. REQUIRES: the planes have these types, and the gradient
/// too if it is used.
template <class Weight, class Gradient>
AdamWView<Weight, Gradient> adamw_view(const Planes& planes) {
  constexpr bool kHasRemainder = !std::is_same_v<Weight, float>;
  constexpr size_t kMomentum = kHasRemainder ? 2 : 1;
  return {reinterpret_cast<Weight*>(planes[kWeightPlane]),
          kHasRemainder ? reinterpret_cast<Remainder<Weight>*>(planes[1]) : nullptr,
          reinterpret_cast<float*>(planes[kMomentum]),
          reinterpret_cast<float*>(planes[kMomentum + 1]),
          reinterpret_cast<const Gradient*>(planes.gradient)};
}

/// Returns body(view) with the view of the planes' types. REQUIRES: both are float types.
template <class Body>
auto with_adamw_view(const Planes& planes, const Body& body) {
  return with_float_type(planes.weight_dtype, [&]<class W>(W) {
    return with_float_type(planes.gradient_dtype,
                           [&]<class G>(G) { return body(adamw_view<W, G>(planes)); });
  });
}

}  // namespace ebb
