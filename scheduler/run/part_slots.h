// The part slots of all ranks of a machine, for split loads (scheduler/plan/split_loads.h). Each
// rank writes its own slots and reads those of all ranks; the plan orders it.
//
// Thread-safety: the copy thread calls the functions that submit. They allocate nothing.
#pragma once

#include <cstddef>

#include "chunk/layout.h"
#include "comm/ranks.h"
#include "device/device.h"
#include "scheduler/plan/plan.h"
#include "scheduler/run/shared_device_memory.h"

namespace ebb {

class PartSlots {
 public:
  /// `layout` and `ranks` must outlive this object. Constructor and destructor are collective, as
  /// those of SharedDeviceMemory. REQUIRES: division.splits_loads.
  PartSlots(Device& device, const Layout& layout, const Division& division, Ranks& ranks);

  /// Submits the copy of this rank's part to its slot. `weights`: those of the whole chunk, or if
  /// op.slot is not kNone, only the part. REQUIRES: is_load_part(op).
  void submit_load(Stream& load, const Op& op, const std::byte* weights);
  /// Submits the copies of all parts to the chunk at `to`. REQUIRES: is_gather(op), and it belongs
  /// to a split load.
  void submit_gather(Stream& load, const Op& op, std::byte* to) const;

 private:
  size_t slot_offset(const Op& op) const;

  const Layout& layout_;
  const RankPlace place_;
  SharedDeviceMemory memory_;
};

}  // namespace ebb
