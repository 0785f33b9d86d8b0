#include "scheduler/run/device_slots.h"

#include "scheduler/search/memory_sizes.h"

namespace ebb {

DeviceSlots::DeviceSlots(Device& device, size_t slot_bytes, uint32_t num_slots, Ranks* ranks)
    : slot_bytes_(slot_bytes) {
  EBB_CHECK(ranks == nullptr || ranks->ranks_per_machine() == ranks->size(),
            "devices of several machines cannot read each other's memory");
  const size_t bytes = num_slots * slot_bytes;
  const bool is_host = device.info().profile.kind == DeviceKind::Host;
  if (ranks != nullptr && is_host) {
    const std::vector<std::byte*> shared = ranks->share(bytes);
    mine_ = shared[ranks->rank()];
    of_ranks_.assign(shared.begin(), shared.end());
    return;
  }
  memory_ = device.allocate(MemoryKind::Device, bytes, kSumsOfGroups);
  mine_ = memory_.data();
  of_ranks_ = {mine_};
  if (ranks != nullptr) open_peers(device, *ranks);
}

void DeviceSlots::open_peers(Device& device, Ranks& ranks) {
  const std::vector<MemoryName> names = all_of_ranks(ranks, device.memory_name(memory_));
  of_ranks_.assign(ranks.size(), mine_);
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.rank()) continue;
    of_ranks_[rank] = opened_.emplace_back(device.open_memory(names[rank])).get();
  }
}

}  // namespace ebb
