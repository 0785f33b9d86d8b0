#include "device/planes.h"

#include "device/errors.h"

namespace ebb {
namespace {

constexpr PlaneInfo kSplitPlanes[] = {
    {.name = "weight", .bits_per_element = 16, .is_weight = true},
    {.name = "low", .bits_per_element = 16, .is_weight = false},
    {.name = "momentum", .bits_per_element = 32, .is_weight = false},
    {.name = "variance", .bits_per_element = 32, .is_weight = false},
};
constexpr PlaneInfo kWholePlanes[] = {
    {.name = "weight", .bits_per_element = 16, .is_weight = true},
    {.name = "master", .bits_per_element = 32, .is_weight = false},
    {.name = "momentum", .bits_per_element = 32, .is_weight = false},
    {.name = "variance", .bits_per_element = 32, .is_weight = false},
};
constexpr PlaneInfo kFloatPlanes[] = {
    {.name = "weight", .bits_per_element = 32, .is_weight = true},
    {.name = "momentum", .bits_per_element = 32, .is_weight = false},
    {.name = "variance", .bits_per_element = 32, .is_weight = false},
};

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

size_t state_bytes_per_element(DType weight_type) {
  size_t bytes = 0;
  for (const PlaneInfo& plane : state_planes(weight_type)) bytes += plane.bytes_per_element();
  return bytes;
}

}  // namespace ebb
