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

IndexRange groups_of_machine(const Division& division) {
  const RankPlace& place = division.place;
  const uint32_t per_machine = place.ranks_per_machine();
  const uint32_t first = place.machine_of(place.rank) * per_machine;
  const auto groups = [&](uint32_t rank) {
    return part_of(division.num_groups, rank, place.num_ranks);
  };
  const IndexRange last = groups(first + per_machine - 1);
  return {groups(first).first, last.first + last.count - groups(first).first};
}

uint32_t num_far_groups(const Division& division) {
  return division.chains_sums ? 0 : division.num_groups - groups_of_machine(division).count;
}

bool can_split_loads(const Division& division) {
  return division.place.ranks_per_machine() > 1 &&
         division.num_micro_batches % division.num_groups == 0 &&
         division.num_groups % division.place.num_ranks == 0;
}

/// Of M machines, the owners of one would copy the sums of (M - 1) / M of all groups for 1 / M of
/// all chunks. In a chain, a machine receives a running sum of each chunk; and if it is neither the
/// first nor the last one, the sums of all groups for its owners.
bool is_chain_shorter(const Division& division) {
  const uint64_t num_machines = division.place.num_machines;
  const uint64_t num_received = num_machines > 2 ? num_machines + 1 : num_machines;
  return division.num_groups * (num_machines - 1) * size_of(division.sum_type) >
         num_machines * num_received * sizeof(float);
}

}  // namespace ebb
