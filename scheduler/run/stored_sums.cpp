#include "scheduler/run/stored_sums.h"

#include <algorithm>

namespace ebb {

StoredSums::StoredSums(const Layout& layout, const Home& home, const SharedDeviceMemory* slots,
                       const Division& division)
    : layout_(layout),
      home_(home),
      type_(division.sum_type),
      slot_elements_(layout.chunk_bytes() / sizeof(float)) {
  for (uint32_t rank = 0; rank < division.place.num_ranks; ++rank) {
    const bool is_near = home.is_near(rank);
    if (slots != nullptr) {
      first_slot_.push_back(slots->of(rank));
    } else {
      first_slot_.push_back(is_near ? home.sum_slot(rank, BufferIndex(0)) : nullptr);
    }
    const uint32_t count = share_of(division, rank).groups.count;
    for (uint32_t i = 0; i < count; ++i) {
      groups_.push_back({rank, i * layout.sum_chunks_per_group(), is_near});
    }
  }
}

uint64_t StoredSums::sum_element(const Segment& part, uint32_t use) const {
  return layout_.first_sum_element(part.parameter, use) + part.first_element -
         layout_.first_element(part.parameter);
}

uint64_t StoredSums::elements_in_one_slot(const Segment& part) const {
  uint64_t count = part.num_elements;
  for (uint32_t use = 0; use < layout_.parameter(part.parameter).num_uses; ++use) {
    count = std::min(count, slot_elements_ - sum_element(part, use) % slot_elements_);
  }
  return count;
}

StoredSums::Place StoredSums::place(const Group& group, const Segment& part, uint32_t use) const {
  const uint64_t element = sum_element(part, use);
  return {group.first_sum_chunk + static_cast<uint32_t>(element / slot_elements_),
          element % slot_elements_};
}

const std::byte* StoredSums::at(const Group& group, const Segment& part, uint32_t use) const {
  const Place place = this->place(group, part, use);
  const BufferIndex number = home_.slot_of(group.rank, place.sum_chunk);
  return first_slot_[group.rank] + (number * slot_elements_ + place.element) * sum_bytes();
}

}  // namespace ebb
