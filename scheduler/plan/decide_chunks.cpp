#include "scheduler/plan/decide_chunks.h"

#include <algorithm>

#include "scheduler/plan/block_need.h"

namespace ebb {
namespace {

// Their updates are not deferred, because the next forward begins with their weights.
constexpr size_t kLastToFinish = 2;

/// Chooses `most` of the chunks, or all of them if they are fewer, evenly spread; the last one is
/// always among them.
std::vector<ChunkIndex> spread(const std::vector<ChunkIndex>& chunks, uint64_t most) {
  const uint64_t num = std::min<uint64_t>(most, chunks.size());
  std::vector<ChunkIndex> some;
  for (uint64_t i = 0; i < chunks.size(); ++i) {
    if ((i + 1) * num / chunks.size() > i * num / chunks.size()) some.push_back(chunks[i]);
  }
  return some;
}

/// The planes of the first chunks, so many of each rank, are on the devices of their owners. All
/// ranks decide the same, and no block is set aside.
void decide_owner_updates(const PlanOptions& options, std::vector<ChunkRecord>& chunks) {
  const uint64_t num = uint64_t{options.schedule.device_updates} * options.division.place.num_ranks;
  for (size_t c = 0; c < std::min<uint64_t>(num, chunks.size()); ++c) {
    if (chunks[c].is_trained()) chunks[c].tier = Tier::Peer;
  }
}

/// The device updates the chunks that are rounded last, because the next forward begins with them.
void decide_device_updates(const std::vector<ChunkIndex>& order, const Layout& layout,
                           const PlanOptions& options, ChunkDecisions& decisions) {
  if (options.delayed_updates) return;
  if (options.division.sums_on_devices) return decide_owner_updates(options, decisions.chunks);
  if (options.division.stores_groups()) return;  // the gradients are in host memory
  const uint32_t blocks = blocks_of_device_update(layout, options.update_after_norm);
  const size_t num = std::min<size_t>(
      {options.schedule.device_updates, decisions.num_spare / blocks, order.size()});
  for (size_t i = order.size() - num; i < order.size(); ++i) {
    decisions.chunks[order[i]].tier = Tier::Device;
  }
  decisions.num_spare -= static_cast<uint32_t>(num) * blocks;
}

/// The chunks whose sums stay are spread over the backward, so that the link copies the sums of the
/// others all the time. `order`: the chunks that the host updates.
void decide_sums(const std::vector<ChunkIndex>& order, const ChunkTrace& chunk_trace, uint32_t most,
                 ChunkDecisions& decisions) {
  if (most == 0 || chunk_trace.stores_groups) return;
  std::vector<uint32_t> num_blocks(decisions.chunks.size());
  for (const ChunkTraceItem& item : chunk_trace.items) {
    if (!item.is_round()) continue;
    for (const ChunkUse& use : chunk_trace.uses_of(item)) {
      const Space space = chunk_trace.chunk_id(use.chunk).space;
      num_blocks[item.rounded_chunk] += space == Space::GradientSums;
    }
  }
  for (const ChunkIndex c : spread(order, most)) {
    if (num_blocks[c] > decisions.num_spare) return;
    decisions.chunks[c].keeps_sums = true;
    decisions.num_spare -= num_blocks[c];
  }
}

/// Decides which updates are deferred, if any may be, or delays all. With clipping these are all
/// updates on the update stream. Without, they are a share of the chunks of each owner, spread over
/// the backward so that each optimizer is always busy. `order`: the chunks whose updates may be
/// deferred.
void decide_times(const std::vector<ChunkIndex>& order, const PlanOptions& options,
                  std::vector<ChunkRecord>& chunks) {
  const auto share_of = [&](size_t i) {
    return static_cast<size_t>(options.schedule.deferred_share * static_cast<double>(i));
  };
  if (options.delayed_updates) {
    for (const ChunkIndex c : order) chunks[c].update = UpdateTime::Delayed;
    return;
  }
  std::vector<size_t> num_of(options.division.place.num_ranks, 0);  // [owner] so far
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t of_owner = num_of[chunks[order[i]].owner]++;
    const bool is_in_share =
        i + kLastToFinish < order.size() && share_of(of_owner + 1) > share_of(of_owner);
    const bool is_deferred =
        options.schedule.update != UpdateOrder::Wait && (options.update_after_norm || is_in_share);
    if (is_deferred) chunks[order[i]].update = UpdateTime::Deferred;
  }
}

/// The buffers that are used in rotation.
uint32_t num_shared_buffers(const PlanOptions& options) {
  return options.update_after_norm ? 0 : std::max(1u, options.schedule.gradient_buffers);
}

uint32_t num_at_home(std::span<const ChunkRecord> chunks) {
  return static_cast<uint32_t>(std::ranges::count_if(chunks, &ChunkRecord::is_at_home));
}

/// A gradient whose update is deferred, or waits for the norm, has a buffer of its own. The others
/// use the remaining buffers in rotation. `order`: the chunks that the host of this rank updates.
void assign_buffers(const std::vector<ChunkIndex>& order, const PlanOptions& options,
                    ChunkDecisions& decisions) {
  std::vector<ChunkRecord>& chunks = decisions.chunks;
  decisions.gradient_buffers = num_gradient_buffers(chunks, options);
  if (decisions.gradient_buffers == num_at_home(chunks)) {
    // In chunk order: the last chunk and its buffer may be short.
    uint32_t next = 0;
    for (ChunkRecord& chunk : chunks) {
      if (!chunk.is_at_home()) continue;
      const BufferIndex buffer(next++);
      if (chunk.is_trained()) chunk.gradient_buffer = buffer;
    }
    return;
  }
  const uint32_t num_shared = num_shared_buffers(options);
  uint32_t next_own = num_shared, next_shared = 0;
  for (const ChunkIndex c : order) {
    chunks[c].gradient_buffer =
        BufferIndex(chunks[c].is_deferred() ? next_own++ : next_shared++ % num_shared);
  }
}

/// Chooses the speculative updates among the deferred ones: the same share of the chunks of each
/// owner, evenly spread over the order in which gradients are rounded. So updates that are deferred
/// lie between them, in the backward and in the next forward, and neither waits for many updates in
/// a row. The chunk that is rounded last is chosen last, because the next forward begins with it. A
/// chunk qualifies if nothing reads its weights after its gradient is rounded. If this function
/// chose n chunks, then with n as the most it chooses the same ones.
void decide_speculative(const ChunkTrace& chunk_trace, const PlanOptions& options,
                        std::vector<ChunkRecord>& chunks) {
  std::vector<ItemIndex> last_use(chunk_trace.num_flat(), ItemIndex(0));
  for (ItemIndex i{0}; i < chunk_trace.items.size(); ++i) {
    for (const ChunkUse& use : chunk_trace.uses_of(chunk_trace.items[i])) last_use[use.chunk] = i;
  }
  std::vector<std::vector<ChunkIndex>> fit(options.division.place.num_ranks);  // [owner]
  uint64_t num_fit = 0;
  for (ItemIndex i{0}; i < chunk_trace.items.size(); ++i) {
    const ChunkTraceItem& item = chunk_trace.items[i];
    if (!item.is_round()) continue;
    const ChunkIndex c = item.rounded_chunk;
    const FlatIndex weights = chunk_trace.flat_index({Space::Weights, c});
    const bool may_speculate = chunks[c].is_deferred() && !chunks[c].is_on_owner();
    if (!may_speculate || last_use[weights] >= i) continue;
    fit[chunks[c].owner].push_back(c);
    ++num_fit;
  }
  if (num_fit == 0) return;
  const uint64_t most = std::min<uint64_t>(options.schedule.speculated_chunks, num_fit);
  const auto share_of = [&](uint64_t num) { return num * most / num_fit; };
  uint64_t num_before = 0;  // of the owners before this one
  for (std::vector<ChunkIndex>& of_owner : fit) {
    std::ranges::reverse(of_owner);
    const uint64_t num = share_of(num_before + of_owner.size()) - share_of(num_before);
    for (const ChunkIndex c : spread(of_owner, num)) chunks[c].update = UpdateTime::Speculative;
    num_before += of_owner.size();
  }
}

/// The chunks whose weights are used, ascending.
std::vector<ChunkIndex> weights_of(const ChunkTrace& chunk_trace) {
  std::vector<ChunkIndex> weights;
  for (ChunkIndex c{0}; c < chunk_trace.num_chunks(Space::Weights); ++c) {
    if (chunk_trace.is_needed({Space::Weights, c})) weights.push_back(c);
  }
  return weights;
}

uint32_t most_activations(const ChunkTrace& chunk_trace) {
  uint32_t most = 0, now = 0;
  for (const ChunkTraceItem& item : chunk_trace.items) {
    now += item.num(ArenaChunkEvent::Begin) + item.num(ArenaChunkEvent::Needed);
    most = std::max(most, now);
    now -= item.num(ArenaChunkEvent::Idle) + item.num(ArenaChunkEvent::End);
  }
  return most;
}

/// The records of all chunks, with their owners.
std::vector<ChunkRecord> chunks_of_ranks(const Layout& layout, const RankPlace& place) {
  std::vector<ChunkRecord> chunks(layout.num_chunks());
  for (ChunkIndex c{0}; c < chunks.size(); ++c) {
    chunks[c].owner = owner_of(c, place.num_ranks);
    chunks[c].is_mine = chunks[c].owner == place.rank;
    chunks[c].is_near = place.is_near(chunks[c].owner);
  }
  return chunks;
}

/// An evaluation leaves chunks where the step stores them.
ChunkDecisions decide_evaluation(const Layout& layout, const PlanOptions& options,
                                 uint32_t num_spare) {
  ChunkDecisions decisions{.num_spare = num_spare};
  decisions.chunks = chunks_of_ranks(layout, options.division.place);
  for (size_t c = 0; c < options.chunks_of_step.size(); ++c) {
    decisions.chunks[c].tier = options.chunks_of_step[c].tier;
  }
  return decisions;
}

}  // namespace

uint32_t num_gradient_buffers(std::span<const ChunkRecord> chunks, const PlanOptions& options) {
  const auto num_deferred = static_cast<uint32_t>(std::ranges::count_if(
      chunks, [](const ChunkRecord& c) { return c.is_at_home() && c.is_deferred(); }));
  const uint32_t most = num_at_home(chunks);
  return options.update_after_norm ? most
                                   : std::min(most, num_deferred + num_shared_buffers(options));
}

ChunkDecisions decide_chunks(const ChunkTrace& chunk_trace, const Layout& layout,
                             const PlanOptions& options, uint32_t num_spare) {
  if (!options.update) return decide_evaluation(layout, options, num_spare);
  ChunkDecisions decisions{.num_spare = num_spare};
  decisions.chunks = chunks_of_ranks(layout, options.division.place);
  for (ChunkRecord& chunk : decisions.chunks) {
    chunk.is_copied = options.schedule.copies_weights && !chunk.is_near;
  }
  std::vector<ChunkIndex> order = round_order(chunk_trace);
  for (const ChunkIndex c : order) {
    decisions.chunks[c].update =
        options.update_after_norm ? UpdateTime::AfterNorm : UpdateTime::Early;
  }
  decide_device_updates(order, layout, options, decisions);
  std::erase_if(order, [&](ChunkIndex c) { return decisions.chunks[c].is_on_device(); });
  decide_sums(order, chunk_trace, options.schedule.kept_sums, decisions);
  // All ranks decide the same about the times of updates. Those on devices take little time.
  std::vector<ChunkIndex> deferrable = order;
  if (!options.update_after_norm) {
    std::erase_if(deferrable, [&](ChunkIndex c) { return decisions.chunks[c].is_on_owner(); });
  }
  decide_times(deferrable, options, decisions.chunks);
  if (options.update_after_norm && !options.delayed_updates) {
    decide_speculative(chunk_trace, options, decisions.chunks);
  }
  std::erase_if(order, [&](ChunkIndex c) { return !decisions.chunks[c].is_at_home(); });
  assign_buffers(order, options, decisions);
  return decisions;
}

uint32_t most_residents(const ChunkTrace& chunk_trace, const PlanOptions& options,
                        uint32_t num_spare) {
  if (options.update && options.update_after_norm) return 0;
  const uint32_t wanted = options.schedule.resident_chunks;
  // All weights of an evaluation are resident: then no call needs further blocks for weights.
  const bool all =
      !options.update && wanted > num_spare &&
      weights_of(chunk_trace).size() + most_activations(chunk_trace) <= options.num_blocks;
  return all ? wanted : std::min(wanted, num_spare);
}

void decide_residents(const ChunkTrace& chunk_trace, const PlanOptions& options, uint32_t num,
                      std::vector<ChunkRecord>& chunks) {
  for (ChunkRecord& chunk : chunks) chunk.is_resident = chunk.is_on_device();
  if (!options.update) {
    if (std::ranges::any_of(chunks, &ChunkRecord::is_on_device)) return;
    // The chunks that are loaded lie between the resident ones.
    for (const ChunkIndex c : spread(weights_of(chunk_trace), num)) {
      chunks[c].is_resident = true;
    }
    return;
  }
  for (const ChunkIndex c : round_order(chunk_trace)) {
    if (num == 0) return;
    const bool can_stay = chunk_trace.is_needed({Space::Weights, c}) && !chunks[c].is_deferred() &&
                          !chunks[c].is_on_device();
    if (!can_stay) continue;
    chunks[c].is_resident = true;
    --num;
  }
}

}  // namespace ebb
