#include "scheduler/plan/sum_slots.h"

#include <algorithm>

#include "scheduler/plan/chunk_trace.h"

namespace ebb {
namespace {

// So many of the slots that became free last are not used again yet, and so the store of a sum
// rarely waits for another rank. The slots hold the sums of a parameter chunk of each rank
// that adds, which is two chunks of fp32 sums in each group, so that all can add at the same time.
size_t num_resting(uint32_t num_adders, uint32_t num_groups) {
  constexpr size_t kFewest = 4;
  return std::max(kFewest, size_t{2} * num_adders * num_groups);
}

}  // namespace

std::vector<uint32_t> sum_chunks_of(const Layout& layout, const std::vector<bool>& trained,
                                    ChunkIndex chunk) {
  std::vector<uint32_t> sums;
  for (const Segment& segment : layout.segments(chunk)) {
    if (!trained[segment.parameter]) continue;
    const uint64_t inside = segment.first_element - layout.first_element(segment.parameter);
    for (uint32_t use = 0; use < layout.parameter(segment.parameter).num_uses; ++use) {
      const ChunkRange range = layout.chunks(
          Space::GradientSums, layout.first_sum_element(segment.parameter, use) + inside,
          segment.num_elements);
      for (uint32_t s = range.first; s < range.last; ++s) sums.push_back(s);
    }
  }
  std::ranges::sort(sums);
  sums.erase(std::unique(sums.begin(), sums.end()), sums.end());
  return sums;
}

SumSlots::SumSlots(const Layout& layout, const std::vector<bool>& trained, uint32_t num_adders)
    : layout_(layout),
      num_resting_(num_resting(num_adders, layout.num_groups())),
      sums_of_(layout.num_chunks()),
      num_left_(layout.num_chunks(Space::GradientSums)),
      slot_of_(layout.num_chunks(Space::GradientSums)) {
  for (ChunkIndex c{0}; c < layout.num_chunks(); ++c) {
    sums_of_[c] = sum_chunks_of(layout, trained, c);
    for (uint32_t s : sums_of_[c]) {
      for (; s < num_left_.size(); s += layout.sum_chunks_per_group()) ++num_left_[s];
    }
  }
}

SumSlots::Slot SumSlots::take(uint32_t sum_chunk) {
  Slot slot;
  if (free_.size() > num_resting_) {
    slot = free_.front();
    free_.pop_front();
  } else {
    slot.slot = BufferIndex(num_slots_++);
  }
  slot_of_[sum_chunk] = slot.slot;
  return slot;
}

void SumSlots::add(ChunkIndex chunk) {
  for (uint32_t s : sums_of_[chunk]) {
    for (; s < num_left_.size(); s += layout_.sum_chunks_per_group()) {
      if (--num_left_[s] == 0) free_.push_back({slot_of_[s], chunk});
    }
  }
}

uint32_t count_sum_slots(const ChunkTrace& chunk_trace, const Layout& layout, uint32_t num_adders) {
  SumSlots slots(layout, chunk_trace.trained, num_adders);
  for (ItemIndex i{0}; i < chunk_trace.items.size(); ++i) {
    const ChunkTraceItem& item = chunk_trace.items[i];
    if (item.is_round()) slots.add(item.rounded_chunk);
    for (const ChunkUse& use : chunk_trace.uses_of(item)) {
      const ChunkId id = chunk_trace.chunk_id(use.chunk);
      const NeedIndex last = chunk_trace.needs_of_chunk[chunk_trace.first_need[use.chunk + 1] - 1];
      const bool is_complete = chunk_trace.needs[last].item == i;
      if (id.space == Space::GradientSums && is_complete) slots.take(id.index);
    }
  }
  return slots.num_slots();
}

}  // namespace ebb
