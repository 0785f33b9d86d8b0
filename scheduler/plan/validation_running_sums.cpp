#include "scheduler/plan/validation_running_sums.h"

#include <utility>

namespace ebb::validation {

/// From now on the slot has the running sum of this chunk.
void RunningSums::take_slot(BufferIndex slot, ChunkIndex c) {
  if (slot >= plan_.running_slots || slot >= in_slot_.size()) {
    return report_.complain("running slot {} of {}", slot, plan_.running_slots);
  }
  const ChunkIndex former = std::exchange(in_slot_[slot], c);
  if (former == kNone) return;
  const OfChunk& chunk = chunks_[former];
  const bool is_rounded = next_reader(former, division_.place) == division_.place.rank;
  const OpIndex free = slot == kTotalSlot || is_rounded ? chunk.rounded : chunk.taken;
  if (free == kNone) {
    report_.complain("running slot {} still holds the sum of parameter chunk {}", slot, former);
  }
  memory_.require_after(free, "empties running slot {}", slot);
}

void RunningSums::fetch(const Op& op) {
  const RankPlace& place = division_.place;
  const ChunkIndex c(op.chunk.index);
  OfChunk& chunk = chunks_[c];
  const bool is_total = op.slot == kTotalSlot;
  const bool is_sum = adder_of(division_, c) == place.rank && !is_first_machine(place) &&
                      op.slot == running_slot_of(c, place);
  const bool is_expected = is_total ? fetches_total(c) && op.sender == last_adder(c, place)
                                    : is_sum && op.sender == previous_adder(c, place);
  OpIndex& fetched = is_total ? chunk.total_fetched : chunk.sum_fetched;
  if (!is_expected || fetched != kNone) {
    report_.complain("fetches a running sum of parameter chunk {} from rank {}", c, op.sender);
  }
  const OpIndex received = is_total ? chunk.total_received : chunk.sum_received;
  if (received == kNone) report_.complain("does not wait for rank {}", op.sender);
  memory_.require_after(received, "receives added");
  take_slot(op.slot, c);
  fetched = report_.at();
}

void RunningSums::add(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  OfChunk& chunk = chunks_[c];
  if (chunk.added != kNone || op.slot != running_slot_of(c, division_.place)) {
    report_.complain("adds parameter chunk {} again, or to running slot {}", c, op.slot);
  }
  chunk.added = report_.at();
  if (is_first_machine(division_.place)) return take_slot(op.slot, c);
  if (chunk.sum_fetched == kNone) report_.complain("parameter chunk {} has no running sum", c);
  memory_.require_after(chunk.sum_fetched, "fetches the running sum of parameter chunk {}", c);
}

void RunningSums::round(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  OfChunk& chunk = chunks_[c];
  if (!plan_.chunks[c].is_mine) report_.complain("parameter chunk {} has another owner", c);
  const OpIndex total = fetches_total(c) ? chunk.total_fetched : chunk.added;
  const BufferIndex slot = fetches_total(c) ? kTotalSlot : running_slot_of(c, division_.place);
  if (total == kNone || op.slot != slot) {
    report_.complain("the sum of all groups of parameter chunk {} is not in running slot {}", c,
                     op.slot);
  }
  memory_.require_after(total, "completes the sum of parameter chunk {}", c);
  chunk.rounded = report_.at();
}

void RunningSums::send_copied(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  OfChunk& chunk = chunks_[c];
  const bool is_total = op.message == Message::TotalCopied;
  ++(is_total ? chunk.num_total_sent : chunk.num_sum_sent);
  const OpIndex fetched = is_total ? chunk.total_fetched : chunk.sum_fetched;
  if (fetched == kNone) report_.complain("no running sum of parameter chunk {} is copied", c);
  memory_.require_after(fetched, "fetches the running sum of parameter chunk {}", c);
}

void RunningSums::receive(const Op& op) {
  const RankPlace& place = division_.place;
  const ChunkIndex c(op.chunk.index);
  const bool adds = adder_of(division_, c) == place.rank;
  OfChunk& chunk = chunks_[c];
  if (op.message == Message::Added) {
    if (adds && !is_first_machine(place) && op.sender == previous_adder(c, place)) {
      chunk.sum_received = report_.at();
    } else if (fetches_total(c) && op.sender == last_adder(c, place)) {
      chunk.total_received = report_.at();
    } else {
      report_.complain("waits for rank {} to add parameter chunk {}", op.sender, c);
    }
    return;
  }
  const Message expected = is_last_machine(place) ? Message::TotalCopied : Message::SumCopied;
  if (!adds || op.message != expected || op.sender != next_reader(c, place)) {
    report_.complain("waits for rank {} to copy the sum of parameter chunk {}", op.sender, c);
  }
  chunk.taken = report_.at();
}

void RunningSums::check_end() {
  for (ChunkIndex c{0}; c < chunks_.size(); ++c) {
    const OfChunk& chunk = chunks_[c];
    if (!plan_.chunks[c].is_trained() || adder_of(division_, c) != division_.place.rank) continue;
    if (chunk.added == kNone) report_.complain("does not add parameter chunk {}", c);
    const uint32_t num_sums = is_first_machine(division_.place) ? 0 : 1;
    const uint32_t num_totals = fetches_total(c) ? 1 : 0;
    if (chunk.num_sum_sent != num_sums || chunk.num_total_sent != num_totals) {
      report_.complain("sends {} and {} times that sums of parameter chunk {} are copied",
                       chunk.num_sum_sent, chunk.num_total_sent, c);
    }
  }
}

}  // namespace ebb::validation
