// The stored gradient sums of the groups of micro-batches (scheduler/plan/groups.h): the slots of
// this rank for them, their rounding if Division::sum_type is bf16, and what adds those of all
// ranks.
//
// Thread-safety: the program thread calls submit(), and the thread of the update stream the others;
// before the first step, the program thread may call these, too. After the constructor nothing
// allocates.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "chunk/home.h"
#include "chunk/layout.h"
#include "comm/ranks.h"
#include "device/device.h"
#include "scheduler/plan/plan.h"
#include "scheduler/run/device_adder.h"
#include "scheduler/run/group_adder.h"
#include "scheduler/run/shared_device_memory.h"
#include "system/thread_team.h"

namespace ebb {

class SumsOfGroups {
 public:
  /// `device`, `layout`, `home` and `ranks` must outlive this object. trained[p]: a step computes a
  /// gradient of parameter p. `ranks`: null if there is one rank. `pinned`: for DeviceAdder, if
  /// there is one. If sums are on devices, constructor and destructor are collective. REQUIRES:
  /// plan.division.stores_groups().
  SumsOfGroups(Device& device, const Layout& layout, const Home& home,
               const std::vector<bool>& trained, const Plan& plan, Ranks* ranks, Buffer pinned);

  /// Submits the copy of the complete sums of a chunk to the slot op.slot, rounded if they are to
  /// be. `sums`: fp32, on the device. REQUIRES: stores_sums(op).
  void submit(Stream& store, const Op& op, std::span<const std::byte> sums);
  /// Adds the stored sums of all groups for a chunk, and writes the finished gradient to `gradient`
  /// in host memory, and its partial norms. For a chunk that a GPU updates, call
  /// device_adder().add_on_device() instead. Throws RankLost.
  void add(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient, std::span<double> partials);
  // If sums are chained (scheduler/plan/running_sums.h):
  /// Adds the stored sums of this machine for a chunk to the running sum in the slot, which
  /// has that of the machines before (on the first machine nothing).
  void add_to_running_sum(ThreadTeam& team, ChunkIndex chunk, BufferIndex slot);
  /// As add(), from the running sum of all groups.
  void round_total(ThreadTeam& team, ChunkIndex chunk, BufferIndex slot, std::byte* gradient,
                   std::span<double> partials);
  /// Does a GPU add the sums? Otherwise the processor does.
  bool adds_on_gpu() const { return device_adder_.has_value(); }
  /// REQUIRES: adds_on_gpu().
  DeviceAdder& device_adder() { return *device_adder_; }

 private:
  void submit_rounding(Stream& store, std::byte* rounded, std::span<const std::byte> sums);

  Kernels& kernels_;
  const Layout& layout_;
  const Home& home_;
  const Division division_;
  const bool is_host_device_;
  std::optional<SharedDeviceMemory> slots_;  // if they are in device memory
  Buffer rounded_;            // of the last store, if sums are rounded on their way to host memory
  ThreadTeam store_team_{1};  // rounds them on a host device
  std::optional<DeviceAdder> device_adder_;
  std::optional<GroupAdder> adder_;  // if no GPU adds; with chained sums it also rounds the total
};

}  // namespace ebb
