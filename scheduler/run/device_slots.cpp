#include "scheduler/run/device_slots.h"

#include "scheduler/search/memory_sizes.h"

namespace ebb {

DeviceSlots::DeviceSlots(Device& device, size_t slot_bytes, uint32_t num_slots, Ranks* ranks) {
  EBB_CHECK(ranks == nullptr || ranks->ranks_per_machine() == ranks->size(),
            "devices of several machines cannot read each other's memory");
  const auto not_owned = [](std::byte* data) {
    return std::shared_ptr<const std::byte>(data, [](const std::byte*) {});
  };
  const size_t bytes = num_slots * slot_bytes;
  const bool is_host = device.info().profile.kind == DeviceKind::Host;
  if (ranks != nullptr && is_host) {
    const std::vector<std::byte*> shared = ranks->share(bytes);
    mine_ = shared[ranks->rank()];
    for (std::byte* const data : shared) of_ranks_.push_back(not_owned(data));
    return;
  }
  memory_ = device.allocate(MemoryKind::Device, bytes, kSumsOfGroups);
  mine_ = memory_.data();
  if (ranks == nullptr) {
    of_ranks_ = {not_owned(mine_)};
    return;
  }
  const std::vector<MemoryName> names = all_of_ranks(*ranks, device.memory_name(memory_));
  for (uint32_t rank = 0; rank < ranks->size(); ++rank) {
    of_ranks_.push_back(rank == ranks->rank() ? not_owned(mine_) : device.open_memory(names[rank]));
  }
}

}  // namespace ebb
