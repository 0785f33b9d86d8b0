#include "scheduler/run/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "chunk/index_format.h"

namespace ebb {
namespace {

std::array<uint32_t, kNumSpaces> chunk_counts(const Layout& layout, uint32_t num_arena_chunks) {
  std::array<uint32_t, kNumSpaces> counts{};
  for (int s = 0; s < kNumSpaces; ++s) counts[s] = layout.num_chunks(static_cast<Space>(s));
  counts[static_cast<int>(Space::Activations)] = num_arena_chunks;
  return counts;
}

/// The name of the operation in a profiler, for example "load weights 7".
RangeName range_of(const Op& op) { return {name_of(op), name_of(op.chunk.space), op.chunk.index}; }

}  // namespace

// ---- Spaces

DeviceSpaces::DeviceSpaces(Device& device, const Layout& layout, uint32_t num_blocks,
                           size_t arena_bytes)
    : blocks_(device.create_blocks(layout.chunk_bytes(), num_blocks)) {
  for (int s = 0; s < kNumSpaces; ++s) {
    const Space space = static_cast<Space>(s);
    const size_t bytes = space == Space::Activations ? arena_bytes : layout.space_bytes(space);
    if (bytes > 0) base_[s] = blocks_->reserve(bytes);
  }
  num_arena_chunks_ =
      static_cast<uint32_t>((arena_bytes + layout.chunk_bytes() - 1) / layout.chunk_bytes());
}

// ---- Set-up

Executor::Executor(Device& device, Stream& compute, const Layout& layout, DeviceSpaces& spaces,
                   const Home& home, ChunkWork& work, uint32_t max_ops, Ranks* ranks)
    : device_(device),
      layout_(layout),
      spaces_(spaces),
      home_(home),
      work_(work),
      ranks_(ranks),
      table_(chunk_counts(layout, spaces.num_arena_chunks())) {
  const auto counts = chunk_counts(layout, spaces.num_arena_chunks());
  for (int s = 0; s < kNumSpaces; ++s) last_drop_[s].resize(counts[s], kNone);
  block_of_.resize(spaces.blocks().num_blocks());
  std::iota(block_of_.begin(), block_of_.end(), 0u);
  events_.reserve(max_ops);
  for (uint32_t i = 0; i < max_ops; ++i) events_.push_back(device.create_event());
  times_.resize(max_ops);
  leases_.reserve(64);
  begun_.reserve(16);
  for (int kind = 0; kind < kNumStreamKinds; ++kind) {
    const auto stream_kind = static_cast<StreamKind>(kind);
    const bool is_message = stream_kind == StreamKind::Send || stream_kind == StreamKind::Receive ||
                            stream_kind == StreamKind::Fetch || stream_kind == StreamKind::Parts;
    if (is_message && ranks == nullptr) continue;
    if (stream_kind == StreamKind::Compute) {
      streams_[kind] = &compute;
    } else {
      streams_[kind] = own_streams_.emplace_back(device.create_stream(stream_kind)).get();
    }
  }
  copy_thread_ = std::thread([this] { run_copy_thread(); });
}

Executor::~Executor() { stop_copy_thread(); }

void Executor::begin(const Trace& trace, const Plan& plan, bool blocks_submitting_thread) {
  EBB_CHECK(plan.ops.size() <= events_.size(),
            "the plan has more operations than the executor has events");
  EBB_CHECK(!running_, "an earlier step threw: this executor cannot run another plan");
  running_ = true;
  trace_ = &trace;
  const bool is_new = std::ranges::find(begun_, &plan) == begun_.end();
  if (is_new) begun_.push_back(&plan);
  device_.block_submitting_thread(is_new || blocks_submitting_thread);
  find_residents(plan);
  last_gradient_.begin(plan);
  for (auto& drops : last_drop_) std::ranges::fill(drops, kNone);
  cursor_ = OpIndex(0);
  call_ = CallIndex(0);
  last_compute_op_ = kNone;
  begin_s_ = device_.now_s();
  for (int stream = 0; stream < kNumStreamKinds; ++stream) {
    if (streams_[stream] != nullptr) begin_stats_[stream] = streams_[stream]->stats();
  }
  {
    std::lock_guard lock(mutex_);
    plan_ = &plan;
    submitted_.reset();
    mapped_.reset();
    ++generation_;
  }
  changed_.notify_all();
  submit_until_call();
}

/// Resident chunks stay in their blocks from one plan to the next. block_of_ is changed so that the
/// block numbers of the new plan name these blocks.
void Executor::find_residents(const Plan& plan) {
  EBB_CHECK(table_.num_present() == plan.count(&ChunkRecord::begins_on_device),
            "the chunks on the device are not those with which the plan starts");
  for (ChunkIndex c{0}; c < plan.chunks.size(); ++c) {
    if (!plan.chunks[c].begins_on_device()) continue;
    const auto at = std::ranges::find(block_of_, table_.block({Space::Weights, c}));
    std::swap(*at, block_of_[plan.chunks[c].first_block]);
  }
}

// ---- Program thread

void Executor::begin_call(std::string_view name, Phase phase, std::span<const ParameterUse> uses) {
  EBB_CHECK(call_ < trace_->calls.size(), "the step has more calls than its trace");
  const Call& expected = trace_->calls[call_];
  EBB_CHECK(expected.name == name && expected.phase == phase && expected.num_uses == uses.size(),
            fmt::format("call {} is {} {}, but its trace says {} {}", call_, name_of(phase), name,
                        name_of(expected.phase), expected.name));
  const auto same_parameter = [](const ParameterUse& a, const ParameterUse& b) {
    return a.parameter == b.parameter && a.use == b.use;
  };
  EBB_CHECK(std::ranges::equal(uses, trace_->uses_of(expected), same_parameter),
            fmt::format("call {}, {} {}, uses other parameters than its trace says", call_,
                        name_of(phase), name));
  const Op& run = plan_->ops[cursor_];
  EBB_CHECK(run.kind == OpKind::Call && run.call == call_, "the plan does not contain this call");
  wait_for_all(plan_->waits_of(run), compute());
  lease_chunks(uses);
  lease_activations(run);
  device_.begin_range({name_of(phase), name});
}

void Executor::end_call() {
  device_.end_range();
  leases_.clear();
  compute().record(*events_[cursor_]);
  last_compute_op_ = cursor_;
  submitted_.set(++cursor_);
  ++call_;
  if (ranks_ != nullptr) ranks_->progress();
  submit_until_call();
}

/// Makes `stream` wait for operations. For operations of the copy thread, this thread also waits
/// until the copy thread has submitted them, because a block must be mapped before work on it is
/// submitted. One wait for the last of them is enough: the copy thread works in the plan's order.
void Executor::wait_for_all(std::span<const OpIndex> waits, Stream& stream) {
  uint32_t num_moved = 0;
  for (const OpIndex w : waits) {
    if (is_of_copy_thread(plan_->ops[w])) num_moved = std::max(num_moved, w + 1);
  }
  if (num_moved > 0) wait_mapped(num_moved);
  for_each_timed(waits, [&](OpIndex w) { stream.wait(*events_[w]); });
}

void Executor::lease_chunks(std::span<const ParameterUse> uses) {
  const auto lease = [&](Space space, ElementRange elements) {
    const ChunkRange range = layout_.chunks(space, elements);
    for (uint32_t c = range.first; c < range.last; ++c) {
      if (table_.state({space, c}) != ChunkState::Leased)
        leases_.push_back(table_.lease({space, c}));
    }
  };
  for (const ParameterUse& use : uses) {
    if (use.weight) lease(Space::Weights, layout_.weight_elements(use.parameter, use.rows));
    if (use.gradient) {
      lease(Space::GradientSums,
            layout_.sum_elements(use.parameter, use.use, use.rows, trace_->calls[call_].group));
    }
  }
}

/// Leases the activation chunks that were loaded for this call, so that they cannot be dropped
/// before the call is submitted.
void Executor::lease_activations(const Op& run) {
  for (const OpIndex w : plan_->waits_of(run)) {
    const Op& op = plan_->ops[w];
    if (op.chunk.space == Space::Activations && op.from == Tier::Host) {
      leases_.push_back(table_.lease(op.chunk));
    }
  }
}

Tensor Executor::weight(const ParameterUse& use) {
  const size_t offset = layout_.first_element(use.parameter) * size_of(layout_.weight_type());
  return use.rows.of({spaces_.base(Space::Weights) + offset, layout_.weight_type(),
                      layout_.parameter(use.parameter).shape});
}

/// A call asks for each use once. Contributions come in the order of the trace, so the trace says
/// whether a contribution is the first of the step.
GradientTarget Executor::gradient(const ParameterUse& use) {
  const Call& call = trace_->calls[call_];
  const size_t offset =
      layout_.first_sum_element(use.parameter, use.use, call.group) * sizeof(float);
  const Tensor sums{spaces_.base(Space::GradientSums) + offset, DType::F32,
                    layout_.parameter(use.parameter).shape};
  return {use.rows.of(sums), trace_->write_of(call, use)};
}

void Executor::submit_until_call() {
  while (cursor_ < plan_->ops.size() && plan_->ops[cursor_].kind != OpKind::Call) {
    const Op& op = plan_->ops[cursor_];
    if (takes_no_time(op) && op.stream == StreamKind::Compute) {
      allocate(cursor_);
    } else if (!is_of_copy_thread(op)) {
      submit(cursor_);
    }
    submitted_.set(++cursor_);
  }
}

void Executor::allocate(OpIndex index) {
  for (const OpIndex w : plan_->waits_of(plan_->ops[index])) {
    if (is_of_copy_thread(plan_->ops[w])) wait_mapped(w + 1);
  }
  drop_or_map(index, compute());
}

/// Drops a chunk, or maps its block. Called by the thread that submits to `user`, when all
/// operations that operation `index` waits for are submitted.
void Executor::drop_or_map(OpIndex index, Stream& user) {
  const Op& op = plan_->ops[index];
  Blocks& blocks = spaces_.blocks();
  for_each_timed(plan_->waits_of(op), [&](OpIndex w) {
    if (!blocks.keep_addresses()) {
      events_[w]->synchronize();
    } else if (plan_->ops[w].stream != op.stream) {  // a stream runs in order
      user.wait(*events_[w]);
    }
  });
  OpIndex& last_drop = last_drop_[static_cast<int>(op.chunk.space)][op.chunk.index];
  if (op.kind == OpKind::Drop) {
    last_drop = index;
    return table_.transition(op.chunk, ChunkState::Absent);
  }
  const ProfiledRange range(device_, range_of(op));
  const uint32_t block = block_of_[op.block];
  std::byte* const address = spaces_.address(op.chunk);
  if (last_drop != kNone && blocks.keep_addresses() && !blocks.lies_at(block, address)) {
    for_each_timed({&last_drop, 1}, [&](OpIndex w) { events_[w]->synchronize(); });
  }
  const bool loads = op.from != Tier::None;
  // The table is changed first: if it throws, no block has been moved away from another chunk.
  table_.place(op.chunk, block, loads ? ChunkState::Loading : ChunkState::Present);
  blocks.map(block, address, user);
}

void Executor::submit(OpIndex index) {
  const Op& op = plan_->ops[index];
  const ChunkIndex chunk(op.chunk.index);
  Stream& on = stream(op.stream);
  wait_for_all(plan_->waits_of(op), on);
  std::optional<ProfiledRange> range;  // host functions open a range when they run
  if (op.stream == StreamKind::Compute || op.stream == StreamKind::Store) {
    range.emplace(device_, range_of(op));
  }
  switch (op.kind) {
    case OpKind::Round:
      lease_loaded(op);
      work_.submit_round(on, chunk);
      last_compute_op_ = index;
      break;
    case OpKind::Move:
      submit_move(op);
      break;
    case OpKind::Norm:
      on.submit({.name = "norm"}, [this] {
        const ProfiledRange norm(device_, {"norm", "of all gradients"});
        work_.norm();
      });
      break;
    case OpKind::StorePartialNorms:
      work_.submit_partial_norms(on, chunk);
      break;
    case OpKind::Update:
      if (op.stream == StreamKind::Compute) {
        work_.submit_update(on, chunk);
        last_compute_op_ = index;
        break;
      }
      [[fallthrough]];
    case OpKind::Speculate:
    case OpKind::AddGroups:
    case OpKind::RoundTotal:
      on.submit(work_.update_cost(chunk), [this, &op] { run_on_update_thread(op); });
      break;
    case OpKind::FetchSum:
      submit_fetch(op);
      break;
    case OpKind::Send:
    case OpKind::Receive:
      submit_message(op);
      break;
    case OpKind::Call:
    case OpKind::Drop:
      throw LogicError("the program thread does not submit this operation");
  }
  leases_.clear();
  on.record(*events_[index]);
  last_gradient_.submitted(index, *events_[index]);
}

void Executor::submit_message(const Op& op) {
  if (op.kind == OpKind::Send) {
    stream(op.stream).submit({.name = "send"}, [this, &op] { work_.send(op); });
  } else {
    stream(op.stream).submit({.name = "receive"}, [this, &op] { work_.receive(op); });
  }
}

void Executor::run_on_update_thread(const Op& op) {
  const ProfiledRange work(device_, range_of(op));
  const ChunkIndex chunk(op.chunk.index);
  if (op.kind == OpKind::AddGroups) return work_.add_groups(op);
  if (op.kind == OpKind::RoundTotal) return work_.round_total(op);
  if (op.kind == OpKind::Update) return work_.update(chunk, op.gradient_buffer, op.deferred);
  work_.speculate(chunk, op.gradient_buffer, last_gradient_.has_all_norms());
}

/// Leases the chunks that the rounding of a gradient uses. They are the chunks of the moves that
/// the operation waits for.
void Executor::lease_loaded(const Op& round) {
  for (const OpIndex w : plan_->waits_of(round)) {
    const Op& op = plan_->ops[w];
    if (op.kind == OpKind::Move) leases_.push_back(table_.lease(op.chunk));
  }
}

/// The address in host memory that a load copies from or a store copies to. REQUIRES: it is not a
/// sum slot.
std::byte* Executor::host_address(const Op& op) const {
  if (op.chunk.space == Space::Weights) {
    const ChunkIndex chunk(op.chunk.index);
    if (op.slot != kNone) return home_.fetch_slot(op.slot);
    return plan_->chunks[chunk].is_copied ? home_.copied_weights(chunk)
                                          : home_.plane(op.plane, chunk);
  }
  if (op.chunk.space != Space::Gradients) return home_.host_buffer(op.chunk);
  const uint32_t part = op.chunk.index % layout_.gradient_chunks_per_chunk();
  return home_.gradient_buffer(op.gradient_buffer) + part * layout_.chunk_bytes();
}

/// Submits a store or a fetch.
void Executor::submit_move(const Op& op) {
  if (op.from == Tier::Device) return submit_store(op);
  submit_fetch(op);
}

void Executor::submit_fetch(const Op& op) {
  stream(op.stream).submit({.name = "fetch"}, [this, &op] {
    const ProfiledRange fetch(device_, range_of(op));
    work_.fetch(op);
  });
}

void Executor::submit_store(const Op& op) {
  table_.transition(op.chunk, ChunkState::Storing);
  const size_t bytes = layout_.used_bytes(op.chunk);
  if (stores_sums(op)) {
    home_.set_slot(op.chunk.index, op.slot);
    return work_.submit_sums(store(), op, {spaces_.address(op.chunk), bytes});
  }
  store().copy(host_address(op), spaces_.address(op.chunk), bytes, CopyKind::Store);
  const uint32_t parts = layout_.gradient_chunks_per_chunk();
  if (op.chunk.space == Space::Gradients && op.chunk.index % parts == 0) {
    work_.submit_partial_norms(store(), ChunkIndex(op.chunk.index / parts));
  }
}

void Executor::read_times() {
  num_times_ = plan_->ops.size();
  fill_times(
      *plan_, [this](OpIndex i) { return events_[i]->time_s() - begin_s_; },
      std::span(times_).first(num_times_));
}

ExecutorStats Executor::finish() {
  EBB_CHECK(call_ == trace_->calls.size(), "the step has fewer calls than its trace");
  wait_mapped(static_cast<uint32_t>(plan_->ops.size()));
  for (Stream* s : streams_) {
    if (s != nullptr) s->synchronize();
  }
  EBB_CHECK(table_.num_present() == plan_->count(&ChunkRecord::ends_on_device),
            "the chunks on the device are not those with which the plan ends");
  for (ChunkIndex c{0}; c < plan_->chunks.size(); ++c) {
    if (!plan_->chunks[c].ends_on_device()) continue;
    const ChunkId id{Space::Weights, c};
    if (table_.state(id) == ChunkState::Loading) table_.transition(id, ChunkState::Present);
  }
  ExecutorStats stats;
  stats.total_s = device_.now_s() - begin_s_;
  const auto busy = [&](StreamKind stream) {
    const int i = static_cast<int>(stream);
    return streams_[i]->stats().busy_s - begin_stats_[i].busy_s;
  };
  stats.compute_s = busy(StreamKind::Compute);
  stats.update_s = busy(StreamKind::Update);
  read_times();
  stats.overlap_s = std::min({overlap(*plan_, times(), StreamKind::Compute, StreamKind::Update),
                              stats.compute_s, stats.update_s});
  if (last_compute_op_ != kNone) {
    stats.stall_s = std::max(0.0, times_[last_compute_op_].end_s - stats.compute_s);
  }
  device_.block_submitting_thread(false);
  running_ = false;
  return stats;
}

std::exception_ptr Executor::cancel() noexcept {
  stop_copy_thread();  // the copy thread submits to streams, too
  device_.block_submitting_thread(false);
  std::exception_ptr bad_data;
  for (Stream* s : streams_) {
    if (s == nullptr) continue;
    try {
      s->synchronize();
    } catch (const LogicError&) {
      if (s == &compute()) bad_data = std::current_exception();
    } catch (...) {  // the first error of the step is thrown already
    }
  }
  return bad_data;
}

}  // namespace ebb
