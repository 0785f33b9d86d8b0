// Memory of the devices of all ranks of a machine. Each rank writes its own part, and reads those
// of all ranks: stored sums of groups (Division::sums_on_devices), and the state of chunks that are
// on the device of their owner.
//
// On a GPU it is memory of the device, which other devices read (Device::open_memory). On the host
// device it is memory that the ranks share; its budget does not count it, although the plan does.
// This is for tests: have_peer_access() is false for the host device. What the memory contains at
// first is not defined.
//
// The destructor is collective: it waits until all ranks destroy their parts, because others may
// still read this one. It does not wait after a failure of a rank, or if an exception destroys the
// object. Then a kernel or a copy of another GPU may fail with a DeviceError instead of RankLost.
//
// Thread-safety: all methods after the constructor may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/ranks.h"
#include "device/device.h"

namespace ebb {

class SharedDeviceMemory {
 public:
  /// Allocates the part of this rank, of the class `name`; parts may have different sizes, also 0.
  /// Collective. `ranks` must outlive this object; null if there is one rank. REQUIRES: the devices
  /// of a machine can read each other's memory; on a GPU, `bytes` is a multiple of 2 MiB
  /// (Device::memory_name).
  SharedDeviceMemory(Device& device, std::string_view name, size_t bytes, Ranks* ranks);
  ~SharedDeviceMemory();

  /// The part of this rank, to write, and of any rank, to read; null if that rank is on another
  /// machine.
  std::byte* mine() const { return mine_; }
  const std::byte* of(uint32_t rank) const { return of_ranks_[rank].get(); }

 private:
  Ranks* const ranks_;
  const int num_exceptions_;  // on their way at the construction
  Buffer memory_;             // empty if the ranks share host memory
  std::byte* mine_ = nullptr;
  std::vector<std::shared_ptr<const std::byte>> of_ranks_;
};

}  // namespace ebb
