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
      running_(plan, options.division, memory, report),
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
  if (op == kNone) report_.complain("does not wait for {} of parameter chunk {}", what, chunk);
  memory_.require_after(op, "receives {}", what);
}

void Groups::add(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  if (!adds(c)) report_.complain("another rank adds parameter chunk {}", c);
  OfChunk& chunk = chunks_[c];
  require_stored(c);
  if (has_sums_of_others()) require_received(c, chunk.sums_received, "sums");
  chunk.added = report_.at();
  if (options_.division.chains_sums) {
    running_.add(op);
    // When this rank has announced it, the owner may update the chunk.
    const ChunkRecord& record = plan_.chunks[c];
    const bool is_updated = record.update == UpdateTime::Early && !record.is_mine;
    if (is_updated) memory_.update_elsewhere({Space::Weights, c});
    return;
  }
  if (op.slot != kNone) report_.complain("adds to running slot {} without a chain", op.slot);
  last_add_ = report_.at();
  gradients_.add(c, op.gradient_buffer);
}

void Groups::fetch_sum(const Op& op) {
  if (!options_.division.chains_sums) report_.complain("sums are not chained");
  running_.fetch(op);
}

void Groups::round_total(const Op& op) {
  if (!options_.division.chains_sums) report_.complain("sums are not chained");
  running_.round(op);
  last_add_ = report_.at();
  gradients_.add(ChunkIndex(op.chunk.index), op.gradient_buffer);
}

void Groups::send_sums(ChunkIndex c) {
  const ChunkRecord& record = plan_.chunks[c];
  if (adds(c)) report_.complain("this rank adds parameter chunk {}", c);
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
    case Message::SumCopied:
    case Message::TotalCopied:
      return running_.send_copied(op);
    case Message::Norms:
      norms_sent_ = report_.at();
      return memory_.require_after(last_add_, "makes partial norms");
    case Message::PartLoaded:
    case Message::Gathered:
      report_.complain("names no split load");
  }
}

/// Weights come from the owner, and the copy from the rank that fetches it; several ranks send sums
/// and norms.
void Groups::check_sender(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  uint32_t expected = kNone;
  if (op.message == Message::Weights) expected = plan_.chunks[c].owner;
  if (op.message == Message::Copied) {
    expected = options_.division.place.fetcher_of(c);
  }
  if (op.message == Message::Added) expected = adder_of(options_.division, c);
  if (op.sender != expected) {
    report_.complain("waits for {} of parameter chunk {} from rank {}", name_of(op.message), c,
                     op.sender);
  }
}

void Groups::receive(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  const bool is_of_chain = op.message == Message::SumCopied || op.message == Message::TotalCopied ||
                           (op.message == Message::Added && adds(c));
  if (is_of_chain && options_.division.chains_sums) return running_.receive(op);
  if (op.message > Message::Norms) return report_.complain("names no split load");
  check_sender(op);
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
  const bool is_sender = op.message == Message::Weights ? plan_.chunks[c].is_mine
                                                        : adds(c) != (op.message == Message::Sums);
  if (is_sender) {
    report_.complain("waits for {} of parameter chunk {}, which no other rank sends",
                     name_of(op.message), c);
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

void Groups::fetch_copy(const Op& op) {
  const ChunkIndex c(op.chunk.index);
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
    if (chunk.num_sums_sent != (adds(c) ? 0 : 1)) {
      report_.complain("sends the sums of parameter chunk {} {} times", c, chunk.num_sums_sent);
    }
    if (chunk.num_added_sent != (adds(c) ? 1 : 0)) {
      report_.complain("sends {} times that parameter chunk {} is added", chunk.num_added_sent, c);
    }
    if (!record.is_mine) continue;
    const uint32_t num_announced = record.is_delayed() ? 0 : chunk.num_updates;
    if (chunk.num_updates_sent != num_announced) {
      report_.complain("sends {} of {} updates of parameter chunk {}", chunk.num_updates_sent,
                       num_announced, c);
    }
  }
  if (options_.division.chains_sums) running_.check_end();
}

}  // namespace ebb::validation
