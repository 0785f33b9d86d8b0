#include "tools/rank_cores.h"

#include <algorithm>
#include <vector>

#include "scheduler/plan/groups.h"
#include "system/cores.h"
#include "tools/machine.h"

namespace ebb {

CoreShare core_share(std::span<const CoreSet> allowed, uint32_t rank,
                     std::span<const CoreSet> nodes) {
  const CoreSet mine = allowed[rank];
  const auto num_sharing = static_cast<uint32_t>(std::ranges::count(allowed, mine));
  const auto position = static_cast<uint32_t>(std::ranges::count(allowed.subspan(0, rank), mine));
  std::vector<CoreSet> my_nodes;
  for (const CoreSet& node : nodes) {
    if ((node & mine).any()) my_nodes.push_back(node & mine);
  }
  const auto num_nodes = static_cast<uint32_t>(my_nodes.size());
  if (num_nodes < 2 || num_sharing < 2) return {mine, num_sharing};
  if (num_sharing >= num_nodes) {
    const uint32_t node = position * num_nodes / num_sharing;
    uint32_t num_on_node = 0;
    for (uint32_t i = 0; i < num_sharing; ++i) num_on_node += i * num_nodes / num_sharing == node;
    return {my_nodes[node], num_on_node};
  }
  CoreShare share;
  for (const CoreSet& node : part_of(num_nodes, position, num_sharing).of(my_nodes)) {
    share.cores |= node;
  }
  return share;
}

uint32_t take_cores(Ranks& ranks) {
  const std::vector<CoreSet> all = all_of_ranks(ranks, cores_of_process());
  const uint32_t per_machine = ranks.ranks_per_machine();
  const uint32_t first = ranks.rank() / per_machine * per_machine;
  const auto of_machine = std::span(all).subspan(first, per_machine);
  if (of_machine[ranks.rank() - first].none()) return per_machine;
  const CoreShare share = core_share(of_machine, ranks.rank() - first, cores_of_nodes());
  bind_process(share.cores);
  return share.num_sharing;
}

}  // namespace ebb
