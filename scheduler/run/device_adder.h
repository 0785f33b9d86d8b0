// Adds the stored gradient sums of all groups for a parameter chunk on a GPU, which reads them in
// the memory of the devices of all ranks (scheduler/run/device_slots.h). The order of the additions
// and the bits are those of GroupAdder. The finished gradient goes to host memory.
//
// The kernels and copies run on a stream of this object, beside those of calls. They use no
// workspace. Results come through pinned memory of this object: a copy to a home that is not pinned
// would wait in the store ring behind stores of the plan, which may wait for this addition.
//
// Thread-safety: one thread calls add(). It allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "device/device.h"
#include "device/tensor.h"
#include "scheduler/run/stored_sums.h"
#include "system/thread_team.h"

namespace ebb {

class DeviceAdder {
 public:
  /// Allocates device_adder_bytes() on the device. `pinned` has device_adder_pinned_bytes().
  /// `device` and `layout` must outlive this object. trained[p]: a step computes a gradient of
  /// parameter p.
  DeviceAdder(Device& device, const Layout& layout, const StoredSums& sums,
              std::vector<bool> trained, Buffer pinned);

  /// As GroupAdder::add(), but throws DeviceError, and never RankLost.
  void add(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient, std::span<double> partials);

 private:
  void add_portion(ElementRange portion, std::span<const Segment> segments);
  void add_segment(ElementRange portion, Segment part);
  void add_groups(const Segment& part, uint32_t use, const Tensor& sum);

  Device& device_;
  const Layout& layout_;
  const StoredSums sums_;
  const std::vector<bool> trained_;
  const Buffer memory_, pinned_;
  const std::unique_ptr<Stream> stream_;
  // Parts of memory_, for the elements that are added at once:
  float* sum_;
  float* sum_of_use_;  // of a use after the first
  std::byte* gradient_;
  double* partials_;
};

}  // namespace ebb
