#include "scheduler/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <queue>

#include "scheduler/program.h"

namespace ebb {
namespace {

// A chunk rests while an eighth of the blocks change hands: 1-4 % more traffic than the least, but
// stores of gradient sums do not hold up the moments that need their blocks (GPT-3, two
// micro-batches: 1.005 x bound, without rest 1.16).
constexpr uint32_t kRestShare = 8;

constexpr uint32_t kStart = UINT32_MAX;  // "before the first item", as a position: see after()

/// Positions are items after which something may happen; kStart sorts before item 0.
uint32_t order_of(uint32_t position) { return position == kStart ? 0 : position + 1; }
uint32_t later(uint32_t a, uint32_t b) { return order_of(a) < order_of(b) ? b : a; }

/// A chunk going home: behind the item that used it last.
struct Store {
  uint32_t chunk;
  uint32_t after_item;
  uint32_t op = kNone;
};

/// A chunk getting a block: a load where its content is at home.
struct Bring {
  uint32_t chunk;
  uint32_t deadline;  // the item that needs it
  uint32_t position;  // the item after which its block is free
  uint32_t block;
  bool copy;
  uint32_t own_store;     // index of the store that took its content home, or kNone
  uint32_t victim;        // the chunk that had the block, or kNone
  uint32_t victim_item;   // its last use
  uint32_t victim_store;  // index of its store, or kNone
};

/// First pass: which chunk is in which block when. Belady over the program, except that what was
/// used just now rests a while: its block could be given on only after its last user, and after a
/// store where it has to go home.
class Residency {
 public:
  /// A chunk rests until `num_rest` others have come; 0: Belady's rule alone.
  Residency(const Program& program, uint32_t num_blocks, uint32_t num_rest);
  void run();

  std::vector<Bring> brings;
  std::vector<Store> stores;
  uint32_t num_blocks_used() const { return static_cast<uint32_t>(blocks_.size()); }
  /// The most chunks at once between their first and their last use.
  uint32_t peak_busy() const { return peak_busy_; }
  bool sums_went_home = false;

  struct Block {
    uint32_t chunk = kNone;
    uint32_t free_after = kStart;
    uint32_t store = kNone;
    bool busy = false;
  };
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  struct Chunk {
    uint32_t block = kNone;
    uint32_t last_item = kStart;
    uint32_t next_item = kNone;
    uint32_t cursor = 0;  // in its list of items
    uint32_t home_store = kNone;
    uint32_t replaced_by = kNone;  // the bring that took its block
    bool dirty = false;
  };
  using Candidate = std::pair<uint32_t, uint32_t>;  // next use, chunk: furthest on top
  using Freed = std::pair<uint32_t, uint32_t>;      // order of position, block: earliest on top

  void index_uses();
  uint32_t next_use(uint32_t chunk) const;
  uint32_t take_block(uint32_t item);
  void may_leave(uint32_t chunk);
  void end_rest();
  uint32_t choose_victim(uint32_t item);
  void evict(uint32_t item);
  void begin_life(uint32_t chunk, uint32_t item);
  void end_life(uint32_t chunk, uint32_t item);
  void bring(uint32_t chunk, uint32_t item, Touch touch);
  void free_block(Chunk& chunk, uint32_t after, uint32_t store);
  void after_use(uint32_t chunk, uint32_t item);

  const Program& program_;
  uint32_t max_blocks_;
  uint32_t num_rest_;
  uint32_t num_busy_ = 0, peak_busy_ = 0;
  std::vector<uint32_t> first_use_;  // of each chunk, in use_items_
  std::vector<uint32_t> use_items_;
  std::vector<Chunk> chunks_;
  std::vector<Block> blocks_;
  struct Resting {
    Candidate candidate;
    size_t num_brings;  // before it was used
  };
  std::deque<Resting> resting_;  // by time of use
  std::priority_queue<Candidate> candidates_;
  std::priority_queue<Freed, std::vector<Freed>, std::greater<>> free_;
};

Residency::Residency(const Program& program, uint32_t num_blocks, uint32_t num_rest)
    : program_(program),
      max_blocks_(num_blocks),
      num_rest_(num_rest),
      chunks_(program.num_dense()) {
  index_uses();
}

void Residency::index_uses() {
  first_use_.assign(program_.num_dense() + 1, 0);
  for (const ChunkUse& use : program_.uses) ++first_use_[use.chunk + 1];
  for (uint32_t chunk : program_.begins) ++first_use_[chunk + 1];
  for (size_t c = 1; c < first_use_.size(); ++c) first_use_[c] += first_use_[c - 1];
  use_items_.resize(program_.uses.size() + program_.begins.size());
  std::vector<uint32_t> at(first_use_.begin(), first_use_.end() - 1);
  for (uint32_t i = 0; i < program_.items.size(); ++i) {
    const ProgramItem& item = program_.items[i];
    for (const ChunkUse& use : program_.uses_of(item)) use_items_[at[use.chunk]++] = i;
    for (uint32_t k = 0; k < item.num_begins; ++k) {
      use_items_[at[program_.begins[item.first_begin + k]]++] = i;
    }
  }
}

uint32_t Residency::next_use(uint32_t chunk) const {
  const uint32_t at = first_use_[chunk] + chunks_[chunk].cursor;
  return at < first_use_[chunk + 1] ? use_items_[at] : kNone;
}

void Residency::free_block(Chunk& chunk, uint32_t after, uint32_t store) {
  Block& block = blocks_[chunk.block];
  block.busy = false;
  --num_busy_;
  block.free_after = after;
  block.store = store;
  free_.push({order_of(after), chunk.block});
  chunk.block = kNone;
}

void Residency::may_leave(uint32_t c) {
  resting_.push_back({{chunks_[c].next_item, c}, brings.size()});
}

void Residency::end_rest() {
  candidates_.push(resting_.front().candidate);
  resting_.pop_front();
}

/// The chunk that is used furthest in the future, of those that do not rest if there is one; kNone
/// where all are needed.
uint32_t Residency::choose_victim(uint32_t item) {
  while (!resting_.empty() && resting_.front().num_brings + num_rest_ <= brings.size()) end_rest();
  for (;;) {
    while (!candidates_.empty()) {
      const auto [next, c] = candidates_.top();
      const bool is_old_entry = chunks_[c].block == kNone || chunks_[c].next_item != next;
      if (!is_old_entry && next == item) break;  // and so are all below it
      candidates_.pop();
      if (!is_old_entry) return c;
    }
    if (resting_.empty()) return kNone;
    end_rest();
  }
}

void Residency::evict(uint32_t item) {
  const uint32_t c = choose_victim(item);
  if (c == kNone) {
    throw PlanError(
        fmt::format("{} blocks are not enough for item {} of the program", max_blocks_, item));
  }
  Chunk& victim = chunks_[c];
  uint32_t store = kNone;
  if (victim.dirty) {
    store = static_cast<uint32_t>(stores.size());
    stores.push_back({c, victim.last_item});
    victim.home_store = store;
    victim.dirty = false;
    sums_went_home = true;
  }
  free_block(victim, victim.last_item, store);
}

uint32_t Residency::take_block(uint32_t item) {
  for (;;) {
    // What was never used is free the longest: a load into it may start at once.
    if (blocks_.size() < max_blocks_) {
      blocks_.emplace_back();
      return static_cast<uint32_t>(blocks_.size() - 1);
    }
    while (!free_.empty()) {
      const auto [order, block] = free_.top();
      free_.pop();
      if (!blocks_[block].busy && order_of(blocks_[block].free_after) == order) return block;
    }
    evict(item);
  }
}

void Residency::bring(uint32_t c, uint32_t item, Touch touch) {
  Chunk& chunk = chunks_[c];
  const uint32_t b = take_block(item);
  Block& block = blocks_[b];
  uint32_t position = later(block.free_after, chunk.last_item);
  if (chunk.replaced_by != kNone) position = later(position, brings[chunk.replaced_by].position);
  if (block.chunk != kNone) chunks_[block.chunk].replaced_by = static_cast<uint32_t>(brings.size());
  chunk.replaced_by = kNone;
  brings.push_back({.chunk = c,
                    .deadline = item,
                    .position = position,
                    .block = b,
                    .copy = touch != Touch::Create,
                    .own_store = chunk.home_store,
                    .victim = block.chunk,
                    .victim_item = block.free_after,
                    .victim_store = block.store});
  block = Block{.chunk = c, .busy = true};
  peak_busy_ = std::max(peak_busy_, ++num_busy_);
  chunk.block = b;
}

void Residency::after_use(uint32_t c, uint32_t item) {
  Chunk& chunk = chunks_[c];
  chunk.last_item = item;
  ++chunk.cursor;
  chunk.next_item = next_use(c);
  if (chunk.next_item != kNone) {
    may_leave(c);
    return;
  }
  uint32_t store = kNone;
  if (program_.chunk_id(c).space == Space::Gradients) {
    store = static_cast<uint32_t>(stores.size());
    stores.push_back({c, item});
  }
  free_block(chunk, item, store);
}

/// Between two lives an activation chunk keeps its block as long as nothing else wants it more: the
/// arena reuses its addresses all the time, and each return would have to wait for the mover.
void Residency::begin_life(uint32_t c, uint32_t item) {
  Chunk& chunk = chunks_[c];
  chunk.next_item = kNone;  // alive: no candidate for eviction
  if (chunk.block == kNone) bring(c, item, Touch::Create);
}

void Residency::end_life(uint32_t c, uint32_t item) {
  Chunk& chunk = chunks_[c];
  chunk.last_item = item;
  ++chunk.cursor;
  chunk.next_item = next_use(c);
  if (chunk.next_item == kNone) return free_block(chunk, item, kNone);
  may_leave(c);
}

void Residency::run() {
  for (uint32_t i = 0; i < program_.items.size(); ++i) {
    const ProgramItem& item = program_.items[i];
    // What is here and needed now must not make room for the rest: its next use is this item.
    for (uint32_t k = 0; k < item.num_begins; ++k)
      begin_life(program_.begins[item.first_begin + k], i);
    for (const ChunkUse& use : program_.uses_of(item)) {
      if (chunks_[use.chunk].block == kNone) {
        chunks_[use.chunk].next_item = i;
        bring(use.chunk, i, use.touch);
      }
      chunks_[use.chunk].dirty |= use.touch != Touch::Read;
    }
    for (const ChunkUse& use : program_.uses_of(item)) after_use(use.chunk, i);
    for (uint32_t k = 0; k < item.num_ends; ++k) end_life(program_.ends[item.first_end + k], i);
  }
}

/// Second pass: the list of operations with what each waits for.
class Emitter {
 public:
  Emitter(const Program& program, const Layout& layout, const PlanOptions& options,
          Residency& residency, Plan& plan)
      : program_(program), layout_(layout), options_(options), residency_(residency), plan_(plan) {}
  void run();

 private:
  uint32_t emit(Op op, std::initializer_list<uint32_t> waits);
  void emit_item(uint32_t item);
  void emit_stores_after(uint32_t item);
  void emit_store(Store& store);
  void emit_brings_after(uint32_t position);
  void emit_bring(const Bring& bring);
  void emit_drop(uint32_t chunk, uint32_t block, uint32_t last_item, uint32_t store);
  void emit_update(uint32_t parameter_chunk, uint32_t wait);
  void emit_end();
  uint32_t item_op(uint32_t item) const { return item == kStart ? kNone : op_of_item_[item]; }
  uint32_t store_op(uint32_t store) const {
    return store == kNone ? kNone : residency_.stores[store].op;
  }

  const Program& program_;
  const Layout& layout_;
  const PlanOptions& options_;
  Residency& residency_;
  Plan& plan_;
  std::vector<uint32_t> op_of_item_;
  std::vector<uint32_t> pending_bring_;  // [chunk] the bring that no item has waited for yet
  size_t next_bring_ = 0;
  std::vector<uint32_t> store_order_;  // stores by after_item
  size_t next_store_ = 0;
  std::vector<uint32_t> slot_of_chunk_;  // [parameter chunk] gradient slot
  std::vector<uint32_t> last_update_of_slot_;
  std::vector<uint32_t> finished_;      // parameter chunks, in order
  std::vector<uint32_t> parts_stored_;  // [parameter chunk] gradient chunks stored
  uint32_t last_gradient_store_ = kNone;
};

uint32_t Emitter::emit(Op op, std::initializer_list<uint32_t> waits) {
  op.first_wait = static_cast<uint32_t>(plan_.waits.size());
  for (uint32_t w : waits) {
    if (w != kNone) plan_.waits.push_back(w);
  }
  op.num_waits = static_cast<uint32_t>(plan_.waits.size()) - op.first_wait;
  plan_.ops.push_back(op);
  return static_cast<uint32_t>(plan_.ops.size() - 1);
}

void Emitter::emit_drop(uint32_t chunk, uint32_t block, uint32_t last_item, uint32_t store) {
  emit(
      {.kind = OpKind::Drop, .lane = Lane::Load, .chunk = program_.chunk_id(chunk), .block = block},
      {item_op(last_item), store_op(store)});
}

void Emitter::emit_bring(const Bring& bring) {
  if (bring.victim != kNone) {
    emit_drop(bring.victim, bring.block, bring.victim_item, bring.victim_store);
  }
  const ChunkId id = program_.chunk_id(bring.chunk);
  pending_bring_[bring.chunk] = emit({.kind = OpKind::Move,
                                      .lane = Lane::Load,
                                      .from = bring.copy ? Tier::Host : Tier::None,
                                      .to = Tier::Device,
                                      .chunk = id,
                                      .block = bring.block},
                                     {store_op(bring.own_store)});
  if (bring.copy) plan_.loaded_bytes += layout_.used_bytes(id);
}

void Emitter::emit_brings_after(uint32_t position) {
  auto& brings = residency_.brings;
  while (next_bring_ < brings.size() &&
         order_of(brings[next_bring_].position) <= order_of(position)) {
    emit_bring(brings[next_bring_++]);
  }
}

void Emitter::emit_item(uint32_t i) {
  const ProgramItem& item = program_.items[i];
  Op op{.kind = OpKind::Run, .moment = item.moment};
  if (item.moment == kNone) {
    op = Op{.kind = OpKind::Finish, .chunk = {Space::Weights, item.finished_chunk}};
  }
  const uint32_t index = emit(op, {});
  const auto wait_for = [&](uint32_t chunk) {
    if (pending_bring_[chunk] == kNone) return;
    plan_.waits.push_back(std::exchange(pending_bring_[chunk], kNone));
    ++plan_.ops[index].num_waits;
  };
  for (uint32_t k = 0; k < item.num_begins; ++k) wait_for(program_.begins[item.first_begin + k]);
  for (const ChunkUse& use : program_.uses_of(item)) wait_for(use.chunk);
  op_of_item_[i] = index;
}

void Emitter::emit_update(uint32_t c, uint32_t wait) {
  const uint32_t slot = slot_of_chunk_[c];
  last_update_of_slot_[slot] = emit({.kind = OpKind::Update,
                                     .lane = Lane::Update,
                                     .chunk = {Space::Weights, c},
                                     .home_slot = slot},
                                    {wait});
}

void Emitter::emit_store(Store& store) {
  const ChunkId id = program_.chunk_id(store.chunk);
  Op op{.kind = OpKind::Move,
        .lane = Lane::Store,
        .from = Tier::Device,
        .to = Tier::Host,
        .chunk = id};
  plan_.stored_bytes += layout_.used_bytes(id);
  if (id.space != Space::Gradients) {
    store.op = emit(op, {item_op(store.after_item)});
    return;
  }
  const uint32_t parts = layout_.gradient_chunks_per_chunk();
  const uint32_t c = id.index / parts;
  if (slot_of_chunk_[c] == kNone) {
    // As many slots as chunks: each its own, since the last slot is then no longer than the last
    // chunk.
    slot_of_chunk_[c] = plan_.num_gradient_slots == layout_.num_chunks()
                            ? c
                            : static_cast<uint32_t>(finished_.size()) % plan_.num_gradient_slots;
    finished_.push_back(c);
  }
  op.home_slot = slot_of_chunk_[c];
  const uint32_t slot_free =
      options_.update_after_norm ? kNone : last_update_of_slot_[op.home_slot];
  store.op = emit(op, {item_op(store.after_item), slot_free});
  last_gradient_store_ = store.op;
  const uint32_t num_parts =
      std::min<uint32_t>(parts, layout_.num_chunks(Space::Gradients) - c * parts);
  if (++parts_stored_[c] == num_parts && !options_.update_after_norm) emit_update(c, store.op);
}

void Emitter::emit_stores_after(uint32_t item) {
  while (next_store_ < store_order_.size() &&
         residency_.stores[store_order_[next_store_]].after_item == item) {
    emit_store(residency_.stores[store_order_[next_store_++]]);
  }
}

void Emitter::emit_end() {
  if (options_.update) {
    const uint32_t norm =
        emit({.kind = OpKind::Norm, .lane = Lane::Update}, {last_gradient_store_});
    if (options_.update_after_norm) {
      std::sort(finished_.begin(), finished_.end());
      for (uint32_t c : finished_) emit_update(c, norm);
    }
  }
  for (uint32_t b = 0; b < residency_.blocks().size(); ++b) {
    const Residency::Block& block = residency_.blocks()[b];
    if (block.chunk != kNone) emit_drop(block.chunk, b, block.free_after, block.store);
  }
}

void Emitter::run() {
  auto& brings = residency_.brings;
  std::stable_sort(brings.begin(), brings.end(), [](const Bring& a, const Bring& b) {
    return std::pair(order_of(a.position), a.deadline) <
           std::pair(order_of(b.position), b.deadline);
  });
  store_order_.resize(residency_.stores.size());
  for (uint32_t s = 0; s < store_order_.size(); ++s) store_order_[s] = s;
  std::stable_sort(store_order_.begin(), store_order_.end(), [&](uint32_t a, uint32_t b) {
    return residency_.stores[a].after_item < residency_.stores[b].after_item;
  });
  op_of_item_.assign(program_.items.size(), kNone);
  pending_bring_.assign(program_.num_dense(), kNone);
  slot_of_chunk_.assign(layout_.num_chunks(), kNone);
  parts_stored_.assign(layout_.num_chunks(), 0);
  last_update_of_slot_.assign(std::max(plan_.num_gradient_slots, layout_.num_chunks()), kNone);

  emit_brings_after(kStart);
  for (uint32_t i = 0; i < program_.items.size(); ++i) {
    emit_item(i);
    emit_stores_after(i);
    emit_brings_after(i);
  }
  emit_end();
}

}  // namespace

std::string_view name_of(OpKind kind) {
  static constexpr std::string_view kNames[] = {"run", "finish", "update", "norm", "move", "drop"};
  return kNames[static_cast<int>(kind)];
}

Plan make_plan(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  const Program program = make_program(trace, layout, options.update);
  Residency residency(program, options.num_blocks,
                      options.least_traffic ? 0 : options.num_blocks / kRestShare);
  residency.run();
  Plan plan;
  plan.num_blocks = options.num_blocks;
  plan.peak_blocks = residency.num_blocks_used();
  plan.sums_at_home = residency.sums_went_home;
  if (options.update) {
    plan.num_gradient_slots =
        options.update_after_norm
            ? layout.num_chunks()
            : std::max(1u, std::min(options.num_gradient_slots, layout.num_chunks()));
  }
  plan.ops.reserve(program.items.size() + 2 * residency.brings.size() + residency.stores.size() +
                   layout.num_chunks() + residency.blocks().size() + 1);
  Emitter(program, layout, options, residency, plan).run();
  return plan;
}

BlockNeed smallest_need(const Trace& trace, const Layout& layout, bool update) {
  const Program program = make_program(trace, layout, update);
  BlockNeed most;
  uint32_t num_activations = 0;
  for (const ProgramItem& item : program.items) {
    num_activations += item.num_begins;
    BlockNeed need;
    need.by_space[static_cast<int>(Space::Activations)] = num_activations;
    need.moment = item.moment == kNone ? "finish a gradient" : trace.moments[item.moment].name;
    need.num_blocks = num_activations + item.num_uses;
    for (const ChunkUse& use : program.uses_of(item)) {
      ++need.by_space[static_cast<int>(program.chunk_id(use.chunk).space)];
    }
    if (need.num_blocks > most.num_blocks) most = need;
    num_activations -= item.num_ends;
  }
  return most;
}

uint32_t resident_num_blocks(const Trace& trace, const Layout& layout, const PlanOptions& options) {
  const Program program = make_program(trace, layout, options.update);
  Residency residency(program, kNone, 0);
  residency.run();
  return residency.peak_busy();
}

std::vector<uint32_t> finish_order(const Trace& trace, const Layout& layout) {
  std::vector<uint32_t> order;
  for (const ProgramItem& item : make_program(trace, layout, true).items) {
    if (item.moment == kNone) order.push_back(item.finished_chunk);
  }
  return order;
}

std::string to_string(const Plan& plan, const Trace& trace) {
  std::string text;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    text += fmt::format("{:>6} {:<6}", i, name_of(op.kind));
    if (op.kind == OpKind::Run) {
      const Moment& m = trace.moments[op.moment];
      text += fmt::format(" {} {} {}", op.moment, name_of(m.phase), m.name);
    } else if (op.kind != OpKind::Norm) {
      text += fmt::format(" {} {}", name_of(op.chunk.space), op.chunk.index);
    }
    if (op.kind == OpKind::Move) text += fmt::format(" {} -> {}", name_of(op.from), name_of(op.to));
    if (op.block != kNone) text += fmt::format(" block {}", op.block);
    if (op.num_waits > 0) text += " after";
    for (uint32_t w : plan.waits_of(op)) text += fmt::format(" {}", w);
    text += '\n';
  }
  return text;
}

}  // namespace ebb
