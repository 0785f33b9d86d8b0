#include "scheduler/plan/validation_groups.h"

#include <algorithm>

#include "scheduler/plan/sum_slots.h"

namespace ebb::validation {

Groups::Groups(const Plan& plan, const Layout& layout, const PlanOptions& options,
               const std::vector<bool>& trained, Memory& memory, Gradients& gradients,
               Report& report)
    : plan_(plan),
      options_(options),
      memory_(memory),
      gradients_(gradients),
      report_(report),
      sums_(layout.num_chunks(Space::GradientSums)),
      chunks_(layout.num_chunks()),
      chunks_of_sum_(sums_.size()),
      in_slot_(plan.sum_slots, kNone) {
  const RankPlace place = options.division.place;
  for (ChunkIndex c{0}; c < chunks_.size(); ++c) {
    const ChunkRecord& chunk = plan.chunks[c];
    if (chunk.owner != owner_of(c, place.num_ranks) ||
        chunk.is_mine != (chunk.owner == place.rank) ||
        chunk.is_near != place.is_near(chunk.owner)) {
      report_.complain("the record of parameter chunk {} is wrong about its owner", c);
    }
    const bool copies = options.update && options.schedule.copies_weights;
    if (chunk.is_copied != (copies && !chunk.is_near)) {
      report_.complain("the record of parameter chunk {} is wrong about its copy", c);
    }
    if (!options.update || !options.division.stores_groups()) continue;
    for (const uint32_t sum : sum_chunks_of(layout, trained, c)) {
      for (uint32_t s = sum; s < sums_.size(); s += layout.sum_chunks_per_group()) {
        chunks_[c].sums.push_back(s);
        chunks_of_sum_[s].push_back(c);
      }
    }
    // The owner may still update what the step before left.
    const bool waits =
        !chunk.is_mine && chunk.is_trained() && !chunk.is_delayed() && !chunk.begins_on_device();
    if (waits) memory_.expect_deferred_update({Space::Weights, c});
  }
}

void Groups::store(uint32_t sum_chunk, BufferIndex slot) {
  Sum& sum = sums_[sum_chunk];
  if (sum.store != kNone) report_.complain("sum chunk {} is stored again", sum_chunk);
  if (sum.num_left > 0) {
    report_.complain("sum chunk {} lacks {} contributions", sum_chunk, sum.num_left);
  }
  sum.store = report_.at();
  if (slot >= in_slot_.size()) {
    return report_.complain("slot {} of {}", slot, in_slot_.size());
  }
  const uint32_t former = std::exchange(in_slot_[slot], sum_chunk);
  if (former == kNone) return;
  for (const uint32_t c : chunks_of_sum_[former]) {
    if (chunks_[c].added == kNone) {
      report_.complain("slot {} holds sum chunk {}, which is not added to parameter chunk {} yet",
                       slot, former, c);
    }
    memory_.require_after(chunks_[c].added, "adds the sums of parameter chunk {}", c);
  }
}

void Groups::require_stored(ChunkIndex chunk) {
  for (const uint32_t s : chunks_[chunk].sums) {
    if (sums_[s].store == kNone) report_.complain("sum chunk {} is not stored", s);
    memory_.require_after(sums_[s].store, "stores sum chunk {}", s);
  }
}

void Groups::require_received(ChunkIndex chunk, OpIndex op, const char* what) {
  if (!has_ranks()) return;
  if (op == kNone) report_.complain("does not wait for {} of parameter chunk {}", what, chunk);
  memory_.require_after(op, "receives {}", what);
}

void Groups::add(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  if (!plan_.chunks[c].is_mine) report_.complain("parameter chunk {} has another owner", c);
  OfChunk& chunk = chunks_[c];
  require_stored(c);
  require_received(c, chunk.sums_received, "sums");
  chunk.added = last_add_ = report_.at();
  gradients_.add(c, op.gradient_buffer);
}

void Groups::send_sums(ChunkIndex c) {
  const ChunkRecord& record = plan_.chunks[c];
  if (record.is_mine) report_.complain("parameter chunk {} belongs to this rank", c);
  ++chunks_[c].num_sums_sent;
  require_stored(c);
  // From now on the owner may update the chunk.
  if (record.update == UpdateTime::Early) memory_.update_elsewhere({Space::Weights, c});
}

void Groups::send(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  switch (op.message) {
    case Message::Sums:
      return send_sums(c);
    case Message::Weights:
      ++chunks_[c].num_updates_sent;
      if (chunks_[c].update == kNone) report_.complain("parameter chunk {} is not updated", c);
      return memory_.require_after(chunks_[c].update, "updates parameter chunk {}", c);
    case Message::Copied:
      ++chunks_[c].num_copied_sent;
      if (chunks_[c].fetched == kNone) report_.complain("parameter chunk {} is not fetched", c);
      return memory_.require_after(chunks_[c].fetched, "fetches parameter chunk {}", c);
    case Message::Added:
      ++chunks_[c].num_added_sent;
      if (chunks_[c].added == kNone) report_.complain("parameter chunk {} is not added", c);
      return memory_.require_after(chunks_[c].added, "adds the sums of parameter chunk {}", c);
    case Message::Norms:
      norms_sent_ = report_.at();
      return memory_.require_after(last_add_, "makes partial norms");
  }
}

void Groups::receive(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  if (op.message == Message::Norms) {
    norms_received_ = report_.at();
    return;
  }
  if (op.message == Message::Copied) {
    if (!plan_.chunks[c].is_copied || fetches(c)) {
      report_.complain("waits for the copy of parameter chunk {}, which no other rank fetches", c);
    }
    if (chunks_[c].num_sums_sent > 0 && plan_.chunks[c].update == UpdateTime::Early) {
      report_.complain("waits for the copy of parameter chunk {} after its update", c);
    }
    return memory_.receive_copy(op.chunk);
  }
  OfChunk& chunk = chunks_[c];
  if (plan_.chunks[c].is_mine != (op.message == Message::Sums)) {
    report_.complain("waits for {} of parameter chunk {}, whose owner is rank {}",
                     name_of(op.message), c, plan_.chunks[c].owner);
  }
  if (op.message == Message::Sums) chunk.sums_received = report_.at();
  if (op.message == Message::Added) chunk.added = report_.at();
  if (op.message == Message::Weights) memory_.receive_home(op.chunk);
}

void Groups::update(const Op& op) {
  OfChunk& chunk = chunks_[op.chunk.index];
  chunk.update = report_.at();
  ++chunk.num_updates;
  if (!plan_.chunks[op.chunk.index].is_mine) {
    report_.complain("parameter chunk {} has another owner", op.chunk.index);
  }
}

void Groups::fetch_copy(ChunkIndex c) {
  if (!fetches(c)) report_.complain("another rank fetches parameter chunk {}", c);
  if (chunks_[c].fetched != kNone) report_.complain("parameter chunk {} is fetched again", c);
  chunks_[c].fetched = report_.at();
}

void Groups::norm() {
  memory_.require_after(last_add_, "makes partial norms");
  if (!has_ranks()) return;
  if (norms_received_ == kNone) report_.complain("does not wait for the norms of other ranks");
  memory_.require_after(norms_received_, "receives norms");
}

void Groups::check_end() {
  if (!options_.update || !has_ranks()) return;
  if (norms_sent_ == kNone) report_.complain("does not send its partial norms");
  for (ChunkIndex c{0}; c < chunks_.size(); ++c) {
    const OfChunk& chunk = chunks_[c];
    const ChunkRecord& record = plan_.chunks[c];
    const bool is_awaited = options_.division.place.ranks_per_machine() > 1;
    if (fetches(c) && chunk.num_copied_sent != (is_awaited ? 1 : 0)) {
      report_.complain("sends {} times that parameter chunk {} is fetched", chunk.num_copied_sent,
                       c);
    }
    if (!record.is_trained()) continue;
    if (!record.is_mine) {
      if (chunk.num_sums_sent == 1) continue;
      report_.complain("sends the sums of parameter chunk {} {} times", c, chunk.num_sums_sent);
      continue;
    }
    const uint32_t num_announced = record.is_delayed() ? 0 : chunk.num_updates;
    if (chunk.num_updates_sent != num_announced) {
      report_.complain("sends {} of {} updates of parameter chunk {}", chunk.num_updates_sent,
                       num_announced, c);
    }
    if (chunk.num_added_sent != 1) {
      report_.complain("sends {} times that parameter chunk {} is added", chunk.num_added_sent, c);
    }
  }
}

}  // namespace ebb::validation
