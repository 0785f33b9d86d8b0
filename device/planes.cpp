#include "device/planes.h"

#include <string>

#include "device/adamw_planes.h"
#include "device/errors.h"

namespace ebb {
namespace {

constexpr bool is_table(std::span<const PlaneInfo> rows) {
  for (const PlaneInfo& row : rows) {
    if (row.elements_per_group == 1 && row.bytes_per_group != size_of(row.type)) return false;
  }
  return rows.size() <= kMostPlanes && rows[kWeightPlane].is_copied;
}
static_assert(is_table(kSplitPlanes) && is_table(kWholePlanes) && is_table(kFloatPlanes));

template <class Condition>
PlaneSet planes_with(DType weight_type, const Condition& condition) {
  const std::span<const PlaneInfo> infos = state_planes(weight_type);
  PlaneSet planes;
  for (size_t i = 0; i < infos.size(); ++i) planes.set(i, condition(infos[i]));
  return planes;
}

}  // namespace

std::span<const PlaneInfo> state_planes(DType weight_type) {
  switch (weight_type) {
    case DType::BF16:
      return kSplitPlanes;
    case DType::F16:
      return kWholePlanes;
    case DType::F32:
      return kFloatPlanes;
    default:
      throw LogicError("weights are of a float type, not of " + std::string(name_of(weight_type)));
  }
}

PlaneSet all_planes(DType weight_type) {
  return planes_with(weight_type, [](const PlaneInfo&) { return true; });
}

PlaneSet master_planes(DType weight_type) {
  return planes_with(weight_type, [](const PlaneInfo& plane) { return plane.holds_master; });
}

PlaneSet uncopied_planes(DType weight_type) {
  return planes_with(weight_type, [](const PlaneInfo& plane) { return !plane.is_copied; });
}

size_t plane_bytes(DType weight_type, PlaneSet planes, uint64_t num_elements) {
  const std::span<const PlaneInfo> infos = state_planes(weight_type);
  size_t bytes = 0;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (planes[i]) bytes += infos[i].bytes(num_elements);
  }
  return bytes;
}

size_t state_bytes(DType weight_type, uint64_t num_elements) {
  return plane_bytes(weight_type, all_planes(weight_type), num_elements);
}

double update_bytes_per_parameter(DType weight_type, DType gradient_type) {
  double bytes = static_cast<double>(size_of(gradient_type));
  for (const PlaneInfo& plane : state_planes(weight_type)) {
    const double accesses = plane.is_read_by_update ? 2 : 1;
    bytes += accesses * plane.bytes_per_group / plane.elements_per_group;
  }
  return bytes;
}

Planes Planes::from(int64_t first) const {
  const std::span<const PlaneInfo> infos = state_planes(weight_dtype);
  Planes result = *this;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (planes[i]) result[i] += infos[i].bytes(static_cast<uint64_t>(first));
  }
  if (gradient) result.gradient += static_cast<size_t>(first) * size_of(gradient_dtype);
  return result;
}

void check_planes(const Planes& planes, PlaneSet needed) {
  const std::span<const PlaneInfo> infos = state_planes(planes.weight_dtype);
  for (size_t i = 0; i < kMostPlanes; ++i) {
    EBB_CHECK(planes[i] == nullptr || i < infos.size(), "more planes than the weights' type has");
    EBB_CHECK(planes[i] != nullptr || !needed[i],
              "the plane " + std::string(i < infos.size() ? infos[i].name : "beyond the table") +
                  " is missing");
  }
}

}  // namespace ebb
