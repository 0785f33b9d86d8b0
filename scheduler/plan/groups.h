// How a step is divided: its micro-batches form groups, and each rank has some of the groups.
//
// Groups are consecutive micro-batches. The gradients of a group are summed in fp32, from zero and
// in order; the sums of the groups are added in the order of the groups. The number of groups is a
// part of the arithmetic, the number of ranks is not: so any number of ranks gives the same bits.
// With one group, or with a group for each micro-batch, this is the sum of all micro-batches in
// order. Stored sums may be rounded to bf16: then the sum of each group, for each use of a
// parameter, is rounded once, also on the rank that adds it, and the rounded sums are added in
// fp32. So the type of stored sums is a part of the arithmetic, too. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/rank_place.h"
#include "device/dtype.h"

namespace ebb {

/// Indices [first, first + count).
struct IndexRange {
  uint32_t first = 0;
  uint32_t count = 0;
  /// These elements of a range of memory. REQUIRES: they exist.
  template <class Range>
  auto of(const Range& all) const {
    return std::span(all).subspan(first, count);
  }
};
/// Part `part` of `num_parts` parts of `total` things. Parts are consecutive, and their counts
/// differ by at most one; so some are empty if there are more parts than things.
inline IndexRange part_of(uint32_t total, uint32_t part, uint32_t num_parts) {
  const auto begin = [&](uint64_t i) { return static_cast<uint32_t>(i * total / num_parts); };
  return {begin(part), begin(part + 1) - begin(part)};
}

/// How a step is divided. REQUIRES: num_ranks <= num_groups <= num_micro_batches; share_of() throws
/// LogicError otherwise. The plan of an evaluation uses only `place`.
struct Division {
  RankPlace place = {};
  uint32_t num_micro_batches = 1;  ///< of all ranks together
  uint32_t num_groups = 1;         ///< of all ranks together
  /// True: stored sums of groups wait in device memory, and the device of the rank that adds them
  /// (adder_of()) does it. False: they wait in host memory, and the processor of that rank does it.
  /// REQUIRES for true: stores_groups(); the device of each rank can read the memory of the devices
  /// of all others of its machine; and there is one machine, or sums are chained.
  bool sums_on_devices = false;
  /// All loads of weights in the plan of a step are split (split_loads.h); other plans load whole
  /// chunks. REQUIRES for true: can_split_loads(*this); and the devices of a machine can read each
  /// other's memory.
  bool splits_loads = false;
  /// For each chunk, one rank of each machine adds the groups of its machine to the sum of the
  /// machines before (scheduler/plan/running_sums.h). Otherwise the owner of a chunk copies the
  /// stored sums of all groups of other machines. REQUIRES: there are several machines.
  bool chains_sums = false;
  /// The type of the stored sums of groups: F32, or BF16, which needs half of the memory and of the
  /// copies. F32 if there is only one group.
  DType sum_type = DType::F32;

  /// Are the sums of each group stored, and added when all are there? Otherwise there is one rank,
  /// and its device adds all micro-batches to one sum.
  bool stores_groups() const {
    const bool is_other_sum = num_groups < num_micro_batches || sum_type != DType::F32;
    return place.num_ranks > 1 || (num_groups > 1 && is_other_sum);
  }
  /// The bytes that `bytes` of fp32 gradient sums take when they are stored.
  size_t stored_bytes(size_t bytes) const { return bytes / sizeof(float) * size_of(sum_type); }
  bool operator==(const Division&) const = default;
};

/// What one rank computes of a step.
struct RankShare {
  IndexRange micro_batches = {};  ///< of those of all ranks
  IndexRange groups = {};         ///< of those of all ranks
  /// [micro-batch, counted from the first of the rank] its group, counted from the first of the
  /// rank.
  std::vector<uint32_t> group_of = {};
};
RankShare share_of(const Division& division, uint32_t rank);
/// The groups of all ranks of the machine of division.place.
IndexRange groups_of_machine(const Division& division);
/// The number of groups whose stored sums an owner copies from other machines; 0 in a chain.
uint32_t num_far_groups(const Division& division);
/// The rank that adds the stored sums of division.place.rank for a parameter chunk.
inline uint32_t adder_of(const Division& division, ChunkIndex chunk) {
  const RankPlace& place = division.place;
  return division.chains_sums ? place.rank_for(chunk, place.machine_of(place.rank))
                              : owner_of(chunk, place.num_ranks);
}
/// The number of ranks that add the stored sums of division.place.rank, each for other chunks.
inline uint32_t num_adders(const Division& division) {
  return division.chains_sums ? division.place.ranks_per_machine() : division.place.num_ranks;
}
/// Can loads be split? Each machine must have several ranks, each rank of the run as many groups as
/// the others, and each group as many micro-batches. Then all ranks of a machine load the same
/// weights in the same order.
bool can_split_loads(const Division& division);
/// Does the machine that receives most receive fewer bytes if sums are chained? With few groups on
/// each machine, running sums in fp32 are more than the stored sums of the other machines. The same
/// on all ranks.
bool is_chain_shorter(const Division& division);

}  // namespace ebb
