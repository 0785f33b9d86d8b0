#include "scheduler/run/part_slots.h"

#include "scheduler/plan/split_loads.h"
#include "scheduler/search/memory_sizes.h"

namespace ebb {

PartSlots::PartSlots(Device& device, const Layout& layout, const Division& division, Ranks& ranks)
    : layout_(layout),
      place_(division.place),
      memory_(device, kPartSlotClass, memory_of_part_slots(layout, division), &ranks) {}

size_t PartSlots::slot_offset(const Op& op) const {
  return op.split % kPartSlots * part_slot_bytes(layout_.chunk_bytes(), place_);
}

void PartSlots::submit_load(Stream& load, const Op& op, const std::byte* weights) {
  const BytePart part = part_of_load(layout_.used_bytes(op.chunk), place_, place_.rank);
  if (part.count == 0) return;
  const std::byte* const from = op.slot != kNone ? weights : weights + part.first;
  load.copy(memory_.mine() + slot_offset(op), from, part.count,
            op.from == Tier::Host ? CopyKind::Load : CopyKind::Within);
}

/// Each rank begins with its own part, so that at the same time all ranks read from different
/// devices.
void PartSlots::submit_gather(Stream& load, const Op& op, std::byte* to) const {
  const uint32_t count = place_.ranks_per_machine();
  const uint32_t first_rank = place_.machine_of(place_.rank) * count;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t rank = first_rank + (place_.rank + i) % count;
    const BytePart part = part_of_load(layout_.used_bytes(op.chunk), place_, rank);
    if (part.count == 0) continue;
    load.copy(to + part.first, memory_.of(rank) + slot_offset(op), part.count, CopyKind::Within);
  }
}

}  // namespace ebb
