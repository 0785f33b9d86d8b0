// Where the stored sums of all groups are: in the slots of the ranks that computed them. The slots
// are in the homes, or on the devices (scheduler/run/shared_device_memory.h).
//
// Thread-safety: const. The results are valid when the sums are stored, and as long as their slots
// are not used again.
#pragma once

#include <cstdint>
#include <vector>

#include "chunk/home.h"
#include "chunk/layout.h"
#include "scheduler/plan/groups.h"
#include "scheduler/run/shared_device_memory.h"

namespace ebb {

class StoredSums {
 public:
  /// A group, and the number of its first chunk of sums on its rank.
  struct Group {
    uint32_t rank;
    uint32_t first_sum_chunk;
    bool is_near;  // its rank is on this machine
  };

  /// `layout`, `home` and `slots` must outlive this object. `slots`: null if the slots are in the
  /// homes.
  StoredSums(const Layout& layout, const Home& home, const SharedDeviceMemory* slots,
             const Division& division);

  /// In the order in which they are added.
  const std::vector<Group>& groups() const { return groups_; }
  /// The largest n for which the first n elements of the part are in one slot, for every use.
  uint64_t elements_in_one_slot(const Segment& part) const;
  /// Cuts a part into segments, each in one slot for every use, and calls visit(segment) in order.
  template <class Visit>
  void for_each_in_one_slot(Segment part, const Visit& visit) const {
    while (part.num_elements > 0) {
      Segment first = part;
      first.num_elements = elements_in_one_slot(part);
      visit(first);
      part.first_element += first.num_elements;
      part.num_elements -= first.num_elements;
    }
  }
  /// The sum chunk in which the first element of the part is, counted over all groups of its rank,
  /// and the number of this element in the chunk.
  struct Place {
    uint32_t sum_chunk;
    uint64_t element;
  };
  Place place(const Group& group, const Segment& part, uint32_t use) const;
  /// The address of the sum of the first element of the part. If the slots are on GPUs, only
  /// kernels and copies of GPUs may use it. REQUIRES: the group is near.
  const std::byte* at(const Group& group, const Segment& part, uint32_t use) const;
  /// The type of the sums, and the bytes of one of them.
  DType type() const { return type_; }
  size_t sum_bytes() const { return size_of(type_); }

 private:
  uint64_t sum_element(const Segment& part, uint32_t use) const;

  const Layout& layout_;
  const Home& home_;
  const DType type_;
  const uint64_t slot_elements_;
  std::vector<const std::byte*> first_slot_;  // [rank]; null if the rank is not near
  std::vector<Group> groups_;
};

}  // namespace ebb
