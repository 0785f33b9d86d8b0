#include "scheduler/run/shared_device_memory.h"

#include <exception>

namespace ebb {

SharedDeviceMemory::SharedDeviceMemory(Device& device, std::string_view name, size_t bytes,
                                       Ranks* ranks)
    : ranks_(ranks), num_exceptions_(std::uncaught_exceptions()) {
  const auto not_owned = [](std::byte* data) {
    return std::shared_ptr<const std::byte>(data, [](const std::byte*) {});
  };
  const bool is_host = device.info().profile.kind == DeviceKind::Host;
  if (ranks != nullptr && is_host) {
    const std::vector<std::byte*> shared = ranks->share_near(bytes);
    mine_ = shared[ranks->rank()];
    for (std::byte* const data : shared) of_ranks_.push_back(not_owned(data));
    return;
  }
  memory_ = device.allocate(MemoryKind::Device, bytes, name);
  mine_ = memory_.data();
  if (ranks == nullptr) {
    of_ranks_ = {not_owned(mine_)};
    return;
  }
  const std::vector<MemoryName> names = all_of_ranks(*ranks, device.memory_name(memory_));
  for (uint32_t rank = 0; rank < ranks->size(); ++rank) {
    if (!ranks->is_near(rank)) {
      of_ranks_.push_back(nullptr);
    } else {
      of_ranks_.push_back(rank == ranks->rank() ? not_owned(mine_)
                                                : device.open_memory(names[rank]));
    }
  }
}

SharedDeviceMemory::~SharedDeviceMemory() {
  if (ranks_ == nullptr || std::uncaught_exceptions() > num_exceptions_) return;
  try {
    all_of_ranks(*ranks_, 'r');  // nobody reads any more
    of_ranks_.clear();           // CUDA wants others to close memory before it is freed
    all_of_ranks(*ranks_, 'c');
  } catch (...) {  // a rank has failed, and all ranks know it
  }
}

}  // namespace ebb
