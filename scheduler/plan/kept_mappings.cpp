#include "scheduler/plan/kept_mappings.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// A block should be free for this share of the time until the last move of the step, because runs
/// are not exactly as fast as simulated.
constexpr double kSlack = 0.002;
constexpr size_t kNobody = std::numeric_limits<size_t>::max();

/// A number for each chunk of all spaces.
size_t number_of(ChunkId chunk) {
  return size_t{chunk.index} * kNumSpaces + static_cast<size_t>(chunk.space);
}

bool is_move_to_device(const Op& op) { return op.kind == OpKind::Move && op.to == Tier::Device; }

/// A chunk is in a block, from a move until a drop.
struct Stay {
  size_t chunk = 0;
  OpIndex move = kNone;  // kNone: since before the plan
  OpIndex drop = kNone;  // kNone: until the plan ends
  double start_s = 0;
  double free_s = kNever;      // what the drop names has ended
  OpIndex free_after = kNone;  // the last operation that it names
  BlockIndex block = kNone;
  size_t before = kNobody;  // the stay before this one in the same block
  size_t former = kNobody;  // the stay before this one of the same chunk
};

/// All stays, by the times of their moves. Nothing if a chunk leaves that was there before the
/// plan.
std::optional<std::vector<Stay>> stays_of(const Plan& plan, std::span<const OpTime> times) {
  std::vector<Stay> stays;
  std::vector<size_t> in_block(plan.num_blocks, kNobody);
  for (const ChunkIndex c : plan.chunks_by(&ChunkRecord::first_block)) {
    in_block[plan.chunks[c].first_block] = stays.size();
    stays.push_back({.chunk = number_of({Space::Weights, c}), .block = plan.chunks[c].first_block});
  }
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind == OpKind::Drop) {
      Stay& stay = stays[in_block[op.block]];
      if (stay.move == kNone) return std::nullopt;
      stay.drop = i;
      stay.free_s = stay.start_s;
      stay.free_after = stay.move;
      for (const OpIndex w : plan.waits_of(op)) {
        stay.free_s = std::max(stay.free_s, times[w].end_s);
        stay.free_after = std::max(stay.free_after, w);
      }
    } else if (is_move_to_device(op)) {
      in_block[op.block] = stays.size();
      stays.push_back({.chunk = number_of(op.chunk),
                       .move = i,
                       .start_s = times[i].start_s,
                       .block = op.block});
    }
  }
  std::ranges::stable_sort(stays, {}, &Stay::start_s);
  return stays;
}

/// Chooses the blocks of all stays that begin in the plan.
class BlockChoice {
 public:
  BlockChoice(std::vector<Stay>& stays, uint32_t num_blocks)
      : stays_(stays),
        last_start_s_(stays.empty() ? 0 : stays.back().start_s),
        blocks_(num_blocks) {
    for (size_t s = 0; s < stays.size(); ++s) {
      if (stays[s].chunk >= chunks_.size()) chunks_.resize(stays[s].chunk + 1);
      chunks_[stays[s].chunk].stays.push_back(s);
    }
  }

  /// Chooses for one step, with the mappings that the call before has left. Returns false if no
  /// block is free for a stay.
  bool choose_step() {
    for (Chunk& chunk : chunks_) chunk.num_past = 0;
    for (Block& block : blocks_) {
      block.last = kNobody;
      block.wanted_s = first_return_s(block);
    }
    for (size_t s = 0; s < stays_.size(); ++s) {
      if (!place(s)) return false;
    }
    return true;
  }

 private:
  struct Chunk {
    std::vector<size_t> stays;
    size_t num_past = 0;           // of these stays
    BlockIndex mapped_to = kNone;  // the block that is mapped at its addresses
  };
  struct Block {
    size_t last = kNobody;            // stay
    std::vector<size_t> chunks = {};  // those that are mapped to it
    double wanted_s = kNever;         // when one of these begins its next stay
  };

  /// Since when the block is free; before the step if nothing was in it.
  double free_s(const Block& block) const {
    return block.last == kNobody ? -kNever : stays_[block.last].free_s;
  }
  bool is_free(const Block& block, const Stay& stay) const {
    if (free_s(block) != stay.start_s) return free_s(block) < stay.start_s;
    return stays_[block.last].free_after < stay.move;
  }
  bool is_free_for_long(const Block& block, const Stay& stay) const {
    return free_s(block) + kSlack * last_start_s_ < stay.start_s;
  }

  /// Of the blocks that qualify, the one with the least key; kNone if there is none.
  BlockIndex least(const auto& qualifies, const auto& key) const {
    BlockIndex best = kNone;
    for (BlockIndex b{0}; b < blocks_.size(); ++b) {
      if (!qualifies(blocks_[b])) continue;
      if (best == kNone || key(blocks_[b]) < key(blocks_[best])) best = b;
    }
    return best;
  }

  BlockIndex choose(const Stay& stay, const Chunk& chunk) const {
    if (stay.move == kNone) return stay.block;
    const BlockIndex former = chunk.mapped_to;
    if (chunk.num_past > 0 && blocks_[former].last == chunk.stays[chunk.num_past - 1]) {
      return is_free(blocks_[former], stay) ? former : kNone;  // no other chunk has taken it
    }
    if (former != kNone && is_free_for_long(blocks_[former], stay)) return former;
    const BlockIndex unwanted = least([&](const Block& b) { return is_free_for_long(b, stay); },
                                      [](const Block& b) { return -b.wanted_s; });
    if (unwanted != kNone) return unwanted;
    return least([&](const Block& b) { return is_free(b, stay); },
                 [&](const Block& b) { return free_s(b); });
  }

  bool place(size_t s) {
    Stay& stay = stays_[s];
    Chunk& chunk = chunks_[stay.chunk];
    const BlockIndex b = choose(stay, chunk);
    if (b == kNone) return false;
    stay.block = b;
    stay.before = blocks_[b].last;
    stay.former = chunk.num_past > 0 ? chunk.stays[chunk.num_past - 1] : kNobody;
    ++chunk.num_past;
    blocks_[b].last = s;
    if (chunk.mapped_to != b) {
      if (chunk.mapped_to != kNone) {
        Block& former = blocks_[chunk.mapped_to];
        std::erase(former.chunks, stay.chunk);
        former.wanted_s = first_return_s(former);
      }
      blocks_[b].chunks.push_back(stay.chunk);
      chunk.mapped_to = b;
    }
    blocks_[b].wanted_s = first_return_s(blocks_[b]);
    return true;
  }

  /// When the first of the chunks that are mapped to the block comes back.
  double first_return_s(const Block& block) const {
    double first = kNever;
    for (const size_t c : block.chunks) {
      const Chunk& chunk = chunks_[c];
      const bool is_in_next_step = chunk.num_past == chunk.stays.size();
      const size_t next = chunk.stays[is_in_next_step ? 0 : chunk.num_past];
      const double step_s = is_in_next_step ? last_start_s_ : 0;
      first = std::min(first, stays_[next].start_s + step_s);
    }
    return first;
  }

  std::vector<Stay>& stays_;
  const double last_start_s_;  // about the length of a step
  std::vector<Chunk> chunks_;
  std::vector<Block> blocks_;
};

/// Lists the operations again, as near to their old order as the new blocks allow.
class NewList {
 public:
  NewList(const Plan& plan, std::span<const Stay> stays)
      : plan_(plan),
        stays_(stays),
        stay_of_(plan.ops.size(), kNobody),
        next_in_block_(stays.size(), kNobody),
        drop_of_(stays.size(), kNone),
        followers_(plan.ops.size()),
        num_awaited_(plan.ops.size()),
        new_index_(plan.ops.size(), kNone) {
    for (size_t s = 0; s < stays.size(); ++s) {
      if (stays[s].move != kNone) stay_of_[stays[s].move] = s;
      if (stays[s].before != kNobody) next_in_block_[stays[s].before] = s;
    }
  }

  /// Nothing if operations would wait for each other. That is possible because an allocation may
  /// run before the operations that are listed before it.
  std::optional<Plan> make() {
    made_ = plan_;
    made_.ops.clear();
    made_.waits.clear();
    order_operations();
    std::priority_queue<OpIndex, std::vector<OpIndex>, std::greater<>> ready;
    size_t num_left = 0;
    for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
      if (plan_.ops[i].kind == OpKind::Drop) continue;
      ++num_left;
      if (num_awaited_[i] == 0) ready.push(i);
    }
    for (; !ready.empty(); --num_left) {
      const OpIndex i = ready.top();
      ready.pop();
      list(i);
      for (const OpIndex f : followers_[i]) {
        if (--num_awaited_[f] == 0) ready.push(f);
      }
    }
    if (num_left > 0) return std::nullopt;
    for (size_t s = 0; s < stays_.size(); ++s) {
      const bool is_last = stays_[s].drop != kNone && next_in_block_[s] == kNobody;
      if (is_last) list_drop(s, StreamKind::Load);
    }
    return std::move(made_);
  }

 private:
  /// Calls visit() for what the operation waits for; a wait for a drop is one for what that names.
  void for_each_wait(const Op& op, const auto& visit) const {
    for (const OpIndex w : plan_.waits_of(op)) {
      if (plan_.ops[w].kind == OpKind::Drop) {
        for_each_wait(plan_.ops[w], visit);
      } else {
        visit(w);
      }
    }
  }

  void put_before(OpIndex first, OpIndex second) {
    followers_[first].push_back(second);
    ++num_awaited_[second];
  }

  void order_operations() {
    std::array<OpIndex, kNumStreamKinds> last;  // of each stream
    last.fill(kNone);
    for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
      const Op& op = plan_.ops[i];
      if (op.kind == OpKind::Drop) continue;
      OpIndex& before = last[static_cast<size_t>(op.stream)];
      if (before != kNone) put_before(before, i);
      before = i;
      for_each_wait(op, [&](OpIndex w) { put_before(w, i); });
      if (stay_of_[i] != kNobody) order_stay(stays_[stay_of_[i]]);
    }
  }

  /// The drops of the block's former chunk and of this chunk's former block must be possible.
  void order_stay(const Stay& stay) {
    if (stay.before != kNobody) {
      const Stay& dropped = stays_[stay.before];
      put_before(dropped.move, stay.move);
      for_each_wait(plan_.ops[dropped.drop], [&](OpIndex w) { put_before(w, stay.move); });
    }
    if (stay.former == kNobody || stay.former == stay.before) return;
    const size_t taker = next_in_block_[stay.former];
    EBB_CHECK(taker != kNobody, "a chunk leaves a block that stays free");
    put_before(stays_[taker].move, stay.move);
  }

  void add(Op op, const auto& add_waits) {
    op.first_wait = static_cast<uint32_t>(made_.waits.size());
    add_waits();
    op.num_waits = static_cast<uint32_t>(made_.waits.size()) - op.first_wait;
    made_.ops.push_back(op);
  }

  void list_drop(size_t s, StreamKind stream) {
    const Op& old = plan_.ops[stays_[s].drop];
    Op drop = old;
    drop.stream = stream;
    drop.block = stays_[s].block;
    drop_of_[s] = OpIndex(made_.ops.size());
    add(drop,
        [&] { for_each_wait(old, [&](OpIndex w) { made_.waits.push_back(new_index_[w]); }); });
  }

  /// Lists a move with the drop before it.
  void list(OpIndex i) {
    const Op& old = plan_.ops[i];
    const Stay* const stay = stay_of_[i] == kNobody ? nullptr : &stays_[stay_of_[i]];
    Op op = old;
    if (stay != nullptr) op.block = stay->block;
    if (stay != nullptr && stay->before != kNobody) list_drop(stay->before, op.stream);
    new_index_[i] = OpIndex(made_.ops.size());
    add(op, [&] {
      for (const OpIndex w : plan_.waits_of(old)) {
        if (plan_.ops[w].kind != OpKind::Drop) made_.waits.push_back(new_index_[w]);
      }
      if (stay == nullptr || stay->former == kNobody) return;
      const OpIndex left = drop_of_[stay->former];
      if (made_.ops[left].stream != op.stream) made_.waits.push_back(left);
    });
  }

  const Plan& plan_;
  const std::span<const Stay> stays_;
  std::vector<size_t> stay_of_;                  // [op] that begins with this move
  std::vector<size_t> next_in_block_;            // [stay]
  std::vector<OpIndex> drop_of_;                 // [stay] in the new list
  std::vector<std::vector<OpIndex>> followers_;  // [op]
  std::vector<uint32_t> num_awaited_;            // [op] those before it that are not listed yet
  std::vector<OpIndex> new_index_;               // [op]
  Plan made_;
};

}  // namespace

uint32_t num_mappings(const Plan& plan) {
  std::vector<std::pair<size_t, BlockIndex>> moves;
  for (const Op& op : plan.ops) {
    if (is_move_to_device(op)) moves.emplace_back(number_of(op.chunk), op.block);
  }
  std::ranges::stable_sort(moves, {}, &std::pair<size_t, BlockIndex>::first);
  uint32_t num = 0;
  for (size_t i = 0; i < moves.size();) {
    size_t end = i;
    while (end < moves.size() && moves[end].first == moves[i].first) ++end;
    BlockIndex now = moves[end - 1].second;  // since the step before
    for (; i < end; ++i) num += std::exchange(now, moves[i].second) != moves[i].second;
  }
  return num;
}

std::optional<Plan> with_kept_mappings(const Plan& plan, std::span<const OpTime> times) {
  EBB_CHECK(times.size() == plan.ops.size(), "the times are those of the plan");
  auto stays = stays_of(plan, times);
  if (!stays) return std::nullopt;
  BlockChoice blocks(*stays, plan.peak_blocks);
  if (!blocks.choose_step() || !blocks.choose_step()) return std::nullopt;
  std::optional<Plan> made = NewList(plan, *stays).make();
  if (made && num_mappings(*made) >= num_mappings(plan)) made.reset();
  return made;
}

}  // namespace ebb
