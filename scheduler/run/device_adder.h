// Adds the stored gradient sums of all groups (in a chain, of those of this machine) for a
// parameter chunk on a GPU, which reads them in the memory of the devices of all ranks of this
// machine (scheduler/run/shared_device_memory.h). The order of the additions and the bits are those
// of GroupAdder. The finished gradient goes to host memory; or it stays on the device, where the
// state of the chunk is, and this object updates the chunk.
//
// The kernels and copies run on a stream of this object, beside those of calls. They use no
// workspace. Each function returns when they are done. Results for the host come through pinned
// memory of this object: a copy to a home that is not pinned would wait in the store ring behind
// stores of the plan, which may wait for this addition. Running sums are copied directly if the
// home is pinned.
//
// Thread-safety: one thread at a time calls the functions. They allocate nothing, and throw
// DeviceError.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "device/device.h"
#include "device/tensor.h"
#include "scheduler/run/device_state.h"
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

  /// As GroupAdder::add(), but never throws RankLost.
  void add(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient, std::span<double> partials);
  /// The same for a gradient that stays on the device, at this address.
  void add_on_device(ChunkIndex chunk, std::byte* gradient, std::span<double> partials);
  /// As GroupAdder::add_to().
  void add_to(ThreadTeam& team, ChunkIndex chunk, float* running, bool has_before);
  /// Updates the chunk with the gradient that add_on_device() made: DeviceState::submit_update().
  void update(const DeviceState& state, ChunkIndex chunk, bool after_norm);

 private:
  template <class Add>
  void for_each_portion(ChunkIndex chunk, const Add& add);
  void add_portion(ChunkIndex chunk, ElementRange in_chunk, std::byte* gradient, std::byte* stored,
                   std::span<double> partials);
  void add_on_stream(ElementRange portion, std::span<const Segment> segments, std::byte* memory);
  void add_segment(ElementRange portion, Segment part, std::byte* gradient);
  void add_groups(const Segment& part, uint32_t use, const Tensor& sum, bool has_before);
  void add_use(ThreadTeam& team, ElementRange portion, std::span<const Segment> segments,
               uint32_t use, float* running, bool has_before);

  Device& device_;
  const Layout& layout_;
  const StoredSums sums_;
  const std::vector<bool> trained_;
  const Buffer memory_, pinned_;
  const bool is_home_pinned_;
  const std::unique_ptr<Stream> stream_;
  // Parts of memory_, for the elements that are added at once:
  float* sum_;
  float* sum_of_use_;  // of a use after the first
  std::byte* gradient_;
  double* partials_;
  AdamWCoefficients* coefficients_;  // of an update
};

}  // namespace ebb
