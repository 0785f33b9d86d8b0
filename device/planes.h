// The planes of the training state: the arrays that are kept between steps.
//
// One table describes the planes of an optimizer for one type of weights. The ledger, the home, the
// state on the device, checkpoints, the state hash and the simulation iterate over this table. Only
// the kernels of the optimizer know what a plane contains (device/adamw_planes.h). A plane is
// stored in groups of elements, so that a group may contain something that its elements share, for
// example the scale of 8-bit values.
//
// Plain values and pure functions. state_planes() throws LogicError for types that are no types of
// weights, and so do the functions that use it.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/dtype.h"

namespace ebb {

/// One array of the state: a row of the table.
struct PlaneInfo {
  std::string_view name;  ///< static storage; checkpoints and the ledger use this name
  DType type;             ///< of the values
  uint32_t bytes_per_group;
  uint32_t elements_per_group = 1;
  bool is_copied = false;  ///< the device computes with this plane, so loads copy it
  /// The planes with this mark together hold the fp32 masters; the other planes are zero at first.
  bool holds_master = false;
  bool is_read_by_update = true;  ///< an update writes all planes, and reads those with this mark

  /// The bytes of so many elements. The last group may be partial; it takes its full size.
  constexpr size_t bytes(uint64_t num_elements) const {
    return (num_elements + elements_per_group - 1) / elements_per_group * bytes_per_group;
  }
};

/// The most planes of an optimizer.
inline constexpr size_t kMostPlanes = 8;
/// The index of the weights that the device computes with. They are the first row of every table.
inline constexpr size_t kWeightPlane = 0;

/// The planes of AdamW for weights of this type. They have 12 bytes per parameter, or 14 for fp16
/// weights, because an fp16 weight and 16 more bits cannot represent an fp32 master.
std::span<const PlaneInfo> state_planes(DType weight_type);

/// Bit i is the i-th plane of state_planes().
using PlaneSet = std::bitset<kMostPlanes>;
PlaneSet all_planes(DType weight_type);
PlaneSet master_planes(DType weight_type);    ///< those with PlaneInfo::holds_master
PlaneSet uncopied_planes(DType weight_type);  ///< those without PlaneInfo::is_copied

/// The bytes of these planes for so many elements.
size_t plane_bytes(DType weight_type, PlaneSet planes, uint64_t num_elements);
/// The bytes of all planes.
size_t state_bytes(DType weight_type, uint64_t num_elements);
/// Bytes of memory that an update reads and writes for each parameter, with its gradient.
double update_bytes_per_parameter(DType weight_type, DType gradient_type);

/// The addresses of the same elements in each plane and in the gradient. The memory of the planes
/// does not overlap.
struct Planes {
  std::array<std::byte*, kMostPlanes> planes{};  ///< by index of state_planes(); null: not here
  const std::byte* gradient = nullptr;           ///< fp32, bf16 or fp16; null: not here
  DType weight_dtype = DType::F32;
  DType gradient_dtype = DType::F32;

  std::byte*& operator[](size_t plane) { return planes[plane]; }
  std::byte* operator[](size_t plane) const { return planes[plane]; }
  /// The same planes and gradient from element `first` on. REQUIRES: `first` is the first element
  /// of a group.
  Planes from(int64_t first) const;
};

/// Throws LogicError if a needed plane is null, or if a plane is set that the table does not have.
/// Does not check the gradient. Cannot see whether a plane has the type that the table says.
void check_planes(const Planes& planes, PlaneSet needed);

}  // namespace ebb
