#include "scheduler/plan/groups.h"

#include "device/errors.h"

namespace ebb {

RankShare share_of(const Division& division, uint32_t rank) {
  const uint32_t num_ranks = division.place.num_ranks, num_groups = division.num_groups;
  EBB_CHECK(rank < num_ranks && num_ranks <= num_groups && num_groups <= division.num_micro_batches,
            "each rank has at least one group, and each group at least one micro-batch");
  RankShare share{.groups = part_of(num_groups, rank, num_ranks)};
  for (uint32_t i = 0; i < share.groups.count; ++i) {
    const IndexRange group =
        part_of(division.num_micro_batches, share.groups.first + i, num_groups);
    if (i == 0) share.micro_batches.first = group.first;
    share.micro_batches.count += group.count;
    share.group_of.insert(share.group_of.end(), group.count, i);
  }
  return share;
}

uint32_t num_far_groups(const Division& division) {
  const RankPlace& place = division.place;
  const uint32_t per_machine = place.ranks_per_machine();
  const uint32_t first = place.machine_of(place.rank) * per_machine;
  const auto groups = [&](uint32_t rank) {
    return part_of(division.num_groups, rank, place.num_ranks);
  };
  const IndexRange last = groups(first + per_machine - 1);
  return division.num_groups - (last.first + last.count - groups(first).first);
}

}  // namespace ebb
