// The slots for stored sums of groups in the memory of the devices of all ranks
// (Division::sums_on_devices). Each rank stores in its own slots, and reads those of all ranks.
//
// On a GPU they are memory of the device, which other devices read (Device::open_memory). On the
// host device they are in memory that the ranks share; its budget does not count them, although the
// plan does. This is for tests: have_peer_access() is false for the host device.
//
// No rank may add when another one destroys its slots. After a failure of a rank this can happen:
// then an addition of another GPU may fail with a DeviceError instead of RankLost.
//
// Thread-safety: all methods after the constructor may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/index.h"
#include "comm/ranks.h"
#include "device/device.h"

namespace ebb {

class DeviceSlots {
 public:
  /// Allocates `num_slots` slots; ranks may have different numbers. Collective. `ranks`: null if
  /// there is one rank. REQUIRES: all ranks are on one machine, and their devices can read each
  /// other's memory.
  DeviceSlots(Device& device, size_t slot_bytes, uint32_t num_slots, Ranks* ranks);

  /// The first slot of this rank, to write, and of any rank, to read.
  std::byte* mine() const { return mine_; }
  const std::byte* of(uint32_t rank) const { return of_ranks_[rank].get(); }

 private:
  Buffer memory_;  // empty if the ranks share host memory
  std::byte* mine_ = nullptr;
  std::vector<std::shared_ptr<const std::byte>> of_ranks_;
};

}  // namespace ebb
