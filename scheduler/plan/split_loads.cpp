#include "scheduler/plan/split_loads.h"

#include <algorithm>

namespace ebb {
namespace {

/// Parts begin at multiples of it, so that copies are fast.
constexpr size_t kAlignment = 256;

}  // namespace

BytePart part_of_load(size_t bytes, const RankPlace& place, uint32_t rank) {
  const size_t each = part_slot_bytes(bytes, place);
  const size_t first = std::min(bytes, rank % place.ranks_per_machine() * each);
  return {first, std::min(each, bytes - first)};
}

size_t part_slot_bytes(size_t bytes, const RankPlace& place) {
  const size_t num_parts = place.ranks_per_machine();
  const size_t each = (bytes + num_parts - 1) / num_parts;
  return (each + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace ebb
