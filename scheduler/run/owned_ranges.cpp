#include "scheduler/run/owned_ranges.h"

#include <algorithm>

#include "chunk/rank_place.h"

namespace ebb {

std::vector<ElementRange> owned_ranges(const Layout& layout, ParameterId id,
                                       const OwnerSet& owners) {
  const uint64_t begin = layout.first_element(id), end = begin + layout.num_elements(id);
  const auto num_ranks = static_cast<uint32_t>(owners.size());
  std::vector<ElementRange> ranges;
  for (uint64_t first = begin; first < end;) {
    const ChunkIndex chunk(first / layout.chunk_elements());
    const uint64_t last = std::min(end, (chunk + uint64_t{1}) * layout.chunk_elements());
    if (owners[owner_of(chunk, num_ranks)]) {
      const bool continues =
          !ranges.empty() && ranges.back().first + ranges.back().count == first - begin;
      if (!continues) ranges.push_back({first - begin, 0});
      ranges.back().count += last - first;
    }
    first = last;
  }
  return ranges;
}

}  // namespace ebb
