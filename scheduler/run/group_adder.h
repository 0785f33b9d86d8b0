// Adds the gradient sums of all groups for a parameter chunk on the processor, in the order of the
// groups, then those of the uses of a tied weight in the order of the calls, and rounds them to the
// finished gradient (cpu_adam/ordered_sum.h). The sums of ranks of this machine are read where they
// are. Those of other machines are copied, one portion after the other; or if sums are chained
// (scheduler/plan/running_sums.h), only those of this machine are added, to a running sum.
//
// Thread-safety: one thread calls the functions. They allocate nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/home.h"
#include "chunk/layout.h"
#include "comm/ranks.h"
#include "cpu_adam/ordered_sum.h"
#include "scheduler/plan/groups.h"
#include "scheduler/run/stored_sums.h"
#include "system/thread_team.h"

namespace ebb {

class GroupAdder {
 public:
  /// `layout`, `home` and `ranks` must outlive this object. add() and add_to() require that
  /// the processor can read `sums`; round() does not use them. trained[p]: a step computes a
  /// gradient of parameter p. `ranks`: null if there is one rank.
  GroupAdder(const Layout& layout, const Home& home, const StoredSums& sums,
             std::vector<bool> trained, const Division& division, Ranks* ranks);

  /// Writes the finished gradient of the chunk: zeros where no parameter is trained. Writes the sum
  /// of squares of each of its pieces to `partials`. REQUIRES: the sums of all ranks for the chunk
  /// are in slots, and the home is connected to those of all ranks. Throws RankLost.
  void add(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient, std::span<double> partials);

  /// Adds the sums of this machine to the running sum of the machines before, or if `has_before` is
  /// false, begins with the sum of its first group. `running` has one array of all elements of the
  /// chunk for each use. Elements of a parameter that is not trained, or has fewer uses, are
  /// undefined. REQUIRES: as add(), but only for the ranks of this machine.
  void add_to(ThreadTeam& team, ChunkIndex chunk, float* running, bool has_before);
  /// Writes `gradient` and `partials` as add() does, from the running sum of all groups. Needs no
  /// slots.
  void round(ThreadTeam& team, ChunkIndex chunk, const float* running, std::byte* gradient,
             std::span<double> partials);

 private:
  template <class Visit>
  void for_each_part(ChunkIndex chunk, const Visit& visit) const;
  template <class Make>
  void make_gradient(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient,
                     std::span<double> partials, const Make& make);
  void add_part(ThreadTeam& team, const Segment& part, std::byte* gradient);
  void add_portion(ThreadTeam& team, const Segment& portion, std::byte* gradient);
  template <class Add>
  void for_each_far(const Segment& part, const Add& add) const;
  void read_far_slots(const Segment& part);
  void read_far_sums(const Segment& portion);

  const Layout& layout_;
  const Home& home_;
  const StoredSums sums_;
  const std::vector<bool> trained_;
  std::vector<const std::byte*> addresses_;  // [use][group]
  std::vector<GroupSums> uses_;
  // Of groups on other machines:
  Ranks* const ranks_;
  std::vector<uint32_t> far_slots_;  // [use][group on another machine]
  std::vector<std::byte> far_sums_;  // [use][group on another machine][element of a portion]
  const size_t far_portion_bytes_;   // of one group and use
  std::vector<RemotePart> parts_;
};

}  // namespace ebb
