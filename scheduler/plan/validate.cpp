#include "scheduler/plan/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "scheduler/plan/sum_slots.h"
#include "scheduler/plan/validation_activations.h"
#include "scheduler/plan/validation_gradients.h"
#include "scheduler/plan/validation_groups.h"
#include "scheduler/plan/validation_memory.h"
#include "scheduler/plan/validation_order.h"
#include "scheduler/plan/validation_split_loads.h"

namespace ebb {
namespace {

using validation::Activations;
using validation::Gradients;
using validation::Groups;
using validation::Memory;
using validation::Order;
using validation::Report;
using validation::SplitLoads;

class Checker {
 public:
  Checker(const Plan& plan, const Trace& trace, const Layout& layout, const PlanOptions& options);
  std::vector<std::string> run();

 private:
  void count_contributions();
  ChunkRange weight_chunks(const ParameterUse& use) const;
  ChunkRange sum_chunks(const Call& call, const ParameterUse& use) const;

  void check(const Op& op);
  bool is_well_formed(const Op& op);
  void check_run(const Op& op);
  void contribute(const Call& call, const ParameterUse& use);
  void check_round(ChunkIndex chunk);
  void read_sums(const Segment& segment);
  void check_move(const Op& op);
  void check_source(const Op& op, bool uses_copy);
  void check_fetch(const Op& op, bool uses_copy);
  void check_store(const Op& op);
  void check_end();
  void check_counts();

  const Plan& plan_;
  const Trace& trace_;
  const Layout& layout_;
  const PlanOptions& options_;
  const Order order_;
  Report report_;
  Memory memory_;
  Activations activations_;

  Gradients gradients_;
  Groups groups_;
  SplitLoads split_loads_;
  size_t part_bytes_ = 0;              // of split loads, from host memory
  uint32_t last_fetch_split_ = kNone;  // of the last fetch to a slot or a copy

  std::vector<std::vector<bool>> contributed_;  // [parameter][use]
  CallIndex next_call_{0};
  std::vector<bool> sum_stored_;          // [sum chunk]
  std::vector<bool> activations_stored_;  // [arena chunk]
};

Checker::Checker(const Plan& plan, const Trace& trace, const Layout& layout,
                 const PlanOptions& options)
    : plan_(plan),
      trace_(trace),
      layout_(layout),
      options_(options),
      order_(plan),
      report_(plan, order_.messages()),
      memory_(layout, validation::num_arena_chunks(trace, layout.chunk_bytes()), options.num_blocks,
              plan.fetch_slots, order_, report_),
      activations_(trace, layout, memory_, report_),
      gradients_(plan, layout, options, memory_, report_),
      groups_(plan, layout, options, trained_parameters(trace, layout.num_parameters()), memory_,
              gradients_, report_),
      split_loads_(options.division, memory_, report_) {
  count_contributions();
}

// ---- The trace, read again

ChunkRange Checker::sum_chunks(const Call& call, const ParameterUse& use) const {
  return layout_.chunks(Space::GradientSums,
                        layout_.sum_elements(use.parameter, use.use, use.rows, call.group));
}

ChunkRange Checker::weight_chunks(const ParameterUse& use) const {
  return layout_.chunks(Space::Weights, layout_.weight_elements(use.parameter, use.rows));
}

void Checker::count_contributions() {
  sum_stored_.resize(layout_.num_chunks(Space::GradientSums), false);
  activations_stored_.resize(validation::num_arena_chunks(trace_, layout_.chunk_bytes()), false);
  contributed_.resize(layout_.num_parameters());
  for (ParameterId p = 0; p < layout_.num_parameters(); ++p) {
    contributed_[p].resize(layout_.parameter(p).num_uses, false);
  }
  for (const Call& call : trace_.calls) {
    for (const ParameterUse& use : trace_.uses_of(call)) {
      if (!use.gradient) continue;
      contributed_[use.parameter].at(use.use) = true;
      const ChunkRange range = weight_chunks(use);
      for (ChunkIndex c{range.first}; c < range.last; ++c) gradients_.expect_contribution(c);
      const ChunkRange sums = sum_chunks(call, use);
      for (uint32_t s = sums.first; s < sums.last; ++s) groups_.expect_contribution(s);
    }
  }
}

// ---- Compute stream

void Checker::check_run(const Op& op) {
  if (op.call != next_call_) {
    report_.complain("runs call {}, the next is {}", op.call, next_call_);
  }
  if (op.call >= trace_.calls.size()) return;
  next_call_ = CallIndex(op.call + 1);
  activations_.begin(op.call);
  for (const ParameterUse& use : trace_.uses_of(trace_.calls[op.call])) {
    const ElementRange weights = layout_.weight_elements(use.parameter, use.rows);
    if (use.weight) memory_.read(Space::Weights, weights.first, weights.count);
    if (use.gradient) contribute(trace_.calls[op.call], use);
  }
  activations_.end(op.call);
}

void Checker::contribute(const Call& call, const ParameterUse& use) {
  const ChunkRange sums = sum_chunks(call, use);
  for (uint32_t s = sums.first; s < sums.last; ++s) {
    memory_.write({Space::GradientSums, s});
    groups_.contribute(s);
  }
  const ChunkRange range = weight_chunks(use);
  for (ChunkIndex c{range.first}; c < range.last; ++c) gradients_.contribute(c);
}

void Checker::check_round(ChunkIndex c) {
  gradients_.round(c);
  for (const Segment& segment : layout_.segments(c)) read_sums(segment);
  memory_.write(Space::Gradients, c * layout_.chunk_elements(), layout_.chunk_elements(c));
}

void Checker::read_sums(const Segment& segment) {
  const ParameterId p = segment.parameter;
  const uint64_t inside = segment.first_element - layout_.first_element(p);
  for (uint32_t use = 0; use < contributed_[p].size(); ++use) {
    if (!contributed_[p][use]) continue;
    memory_.read(Space::GradientSums, layout_.first_sum_element(p, use) + inside,
                 segment.num_elements);
  }
}

// ---- Moves

void Checker::check_move(const Op& op) {
  if (find_move(op.from, op.to) == nullptr) {
    return report_.complain("{} to {} is no move", name_of(op.from), name_of(op.to));
  }
  const std::span<const PlaneInfo> planes = state_planes(layout_.weight_type());
  if (op.plane >= planes.size() || !planes[op.plane].is_copied) {
    return report_.complain("moves plane {}, which is not copied", op.plane);
  }
  const bool is_far = op.chunk.space == Space::Weights && !plan_.chunks[op.chunk.index].is_near;
  const bool uses_copy = is_far && op.slot == kNone && plan_.chunks[op.chunk.index].is_copied;
  const bool is_load = op.to == Tier::Device && op.from != Tier::None;
  if (is_load && are_loads_split(op.chunk, options_))
    return memory_.bring(op, split_loads_.gather(op));
  if (is_load || is_load_part(op) || is_fetch(op)) check_source(op, uses_copy);
  if (is_fetch(op)) return check_fetch(op, uses_copy);
  if (op.to == Tier::Device) {
    return memory_.bring(op, is_load ? memory_.read_source(op, uses_copy) : 0);
  }
  if (!is_load_part(op)) return check_store(op);
  split_loads_.load(op, memory_.read_source(op, uses_copy));
  if (op.from == Tier::Host) part_bytes_ += bytes_of_move(op, layout_, options_.division);
}

void Checker::check_source(const Op& op, bool uses_copy) {
  const bool is_far = op.chunk.space == Space::Weights && !plan_.chunks[op.chunk.index].is_near;
  if (is_far != (op.slot != kNone || uses_copy)) {
    report_.complain("{} weights of rank {}", is_far ? "does not fetch" : "fetches",
                     plan_.chunks[op.chunk.index].owner);
  }
  if (!is_fetch(op) && op.from != source_of(op.chunk, plan_)) {
    report_.complain("{} chunk {} is loaded from the tier {}", name_of(op.chunk.space),
                     op.chunk.index, name_of(op.from));
  }
  const bool fetches_part = is_fetch(op) && !uses_copy && are_loads_split(op.chunk, options_);
  const bool is_of_fetch = op.slot == kNone || !is_load_part(op) || op.split == last_fetch_split_;
  if ((op.split != kNone) != (is_load_part(op) || fetches_part) || !is_of_fetch) {
    report_.complain("names split load {}", op.split);
  }
}

void Checker::check_fetch(const Op& op, bool uses_copy) {
  if (uses_copy) groups_.fetch_copy(op);
  if (op.sender != plan_.chunks[op.chunk.index].owner) {
    report_.complain("fetches from rank {}, which is not the owner", op.sender);
  }
  last_fetch_split_ = op.split;
  memory_.fetch(op, bytes_of_move(op, layout_, options_.division));
}

void Checker::check_store(const Op& op) {
  if (is_share(op) != (stores_sums(op) && options_.division.sums_on_devices)) {
    report_.complain("{} chunk {} {} to memory that other devices read", name_of(op.chunk.space),
                     op.chunk.index, is_share(op) ? "goes" : "does not go");
  }
  memory_.store(op, bytes_of_move(op, layout_, options_.division));
  if (op.chunk.space == Space::GradientSums) {
    if (op.slot != kNone) return groups_.store(op.chunk.index, op.slot);
    sum_stored_[op.chunk.index] = true;
  }
  if (op.chunk.space == Space::Activations) activations_stored_[op.chunk.index] = true;
  if (op.chunk.space == Space::Gradients) {
    gradients_.fill_buffer(ChunkIndex(op.chunk.index / layout_.gradient_chunks_per_chunk()),
                           op.gradient_buffer);
  }
}

// ---- The whole

/// `is_on_device`: so are the planes of its chunk.
StreamKind stream_of(const Op& op, bool is_on_device) {
  switch (op.kind) {
    case OpKind::Call:
    case OpKind::Round:
      return StreamKind::Compute;
    case OpKind::Update:
      return is_on_device ? StreamKind::Compute : StreamKind::Update;
    case OpKind::AddGroups:
    case OpKind::RoundTotal:
    case OpKind::Speculate:
    case OpKind::Norm:
      return StreamKind::Update;
    case OpKind::FetchSum:
      return StreamKind::Fetch;
    case OpKind::Send:
      return stream_of_send(op.message);
    case OpKind::Receive: {
      const bool is_on_parts = op.split != kNone || (op.stream == StreamKind::Parts &&
                                                     may_be_on_parts_stream(op.message));
      return is_on_parts ? StreamKind::Parts : StreamKind::Receive;
    }
    case OpKind::StorePartialNorms:
      return StreamKind::Store;
    case OpKind::Move: {
      const MoveInfo* const move = find_move(op.from, op.to);
      return move != nullptr ? move->stream : op.stream;  // check_move() reports a wrong move
    }
    case OpKind::Drop:
      break;
  }
  return op.stream == StreamKind::Compute ? StreamKind::Compute : StreamKind::Load;
}

bool Checker::is_well_formed(const Op& op) {
  const bool is_update = op.kind == OpKind::Update && op.chunk.index < plan_.chunks.size();
  const StreamKind stream = stream_of(op, is_update && plan_.chunks[op.chunk.index].is_on_device());
  if (op.stream != stream) {
    report_.complain("is on stream {}, not {}", static_cast<int>(op.stream),
                     static_cast<int>(stream));
  }
  const bool ends_gradient = op.kind == OpKind::Round || op.kind == OpKind::Update ||
                             op.kind == OpKind::Speculate || op.kind == OpKind::StorePartialNorms ||
                             op.kind == OpKind::AddGroups || op.kind == OpKind::FetchSum ||
                             op.kind == OpKind::RoundTotal;
  const bool is_message = op.kind == OpKind::Send || op.kind == OpKind::Receive;
  if (!options_.update && (ends_gradient || is_message || op.kind == OpKind::Norm)) {
    report_.complain("has no place in an evaluation");
  }
  if (op.kind == OpKind::Call || op.kind == OpKind::Norm) return true;
  if (memory_.exists(op.chunk) && (op.chunk.space == Space::Weights || !ends_gradient)) return true;
  report_.complain("names {} chunk {}", name_of(op.chunk.space), op.chunk.index);
  return false;
}

void Checker::check(const Op& op) {
  if (!is_well_formed(op)) return;
  switch (op.kind) {
    case OpKind::Call:
      return check_run(op);
    case OpKind::Round:
      return check_round(ChunkIndex(op.chunk.index));
    case OpKind::Update:
      groups_.update(op);
      return gradients_.update(op);
    case OpKind::Speculate:
      return gradients_.speculate(op);
    case OpKind::StorePartialNorms:
      return gradients_.partials(ChunkIndex(op.chunk.index));
    case OpKind::Norm:
      groups_.norm();
      return gradients_.norm();
    case OpKind::AddGroups:
      return groups_.add(op);
    case OpKind::FetchSum:
      return groups_.fetch_sum(op);
    case OpKind::RoundTotal:
      return groups_.round_total(op);
    case OpKind::Send:
      return op.split != kNone ? split_loads_.send(op) : groups_.send(op);
    case OpKind::Receive:
      return op.split != kNone ? split_loads_.receive(op) : groups_.receive(op);
    case OpKind::Move:
      return check_move(op);
    case OpKind::Drop:
      return memory_.drop(op);
  }
}

void Checker::check_end() {
  if (next_call_ != trace_.calls.size()) {
    report_.complain("runs {} of {} calls", next_call_, trace_.calls.size());
  }
  memory_.check_end(plan_.chunks);
  gradients_.check_end();
  groups_.check_end();
  split_loads_.check_end();
}

void Checker::check_counts() {
  const auto compare = [&](const char* what, size_t said, size_t counted) {
    if (said != counted) report_.complain("says {} {}, has {}", what, said, counted);
  };
  compare("blocks", plan_.num_blocks, options_.num_blocks);
  compare("peak blocks", plan_.peak_blocks, memory_.peak_blocks());
  compare("loaded bytes", plan_.loaded_bytes, memory_.loaded_bytes());
  compare("gathered bytes", plan_.gathered_bytes, memory_.gathered_bytes());
  compare("part bytes", plan_.part_bytes, part_bytes_);
  compare("fetched bytes", plan_.fetched_bytes, memory_.fetched_bytes());
  compare("stored bytes", plan_.stored_bytes, memory_.stored_bytes());
  const auto compare_chunks = [&](Space space, const std::vector<uint32_t>& said,
                                  const std::vector<bool>& stored) {
    std::vector<uint32_t> counted;
    for (uint32_t c = 0; c < stored.size(); ++c) {
      if (stored[c]) counted.push_back(c);
    }
    if (said != counted) {
      report_.complain("says that {} chunks of {} are stored, but {} are, or others", said.size(),
                       name_of(space), counted.size());
    }
  };
  compare_chunks(Space::GradientSums, plan_.stored_sums, sum_stored_);
  compare_chunks(Space::Activations, plan_.stored_activations, activations_stored_);
}

std::vector<std::string> Checker::run() {
  for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
    report_.set_at(i);
    check(plan_.ops[i]);
  }
  report_.set_at(kNone);
  check_end();
  check_counts();
  return report_.take();
}

}  // namespace

std::vector<std::string> validate(const Plan& plan, const Trace& trace, const Layout& layout,
                                  const PlanOptions& options) {
  if (plan.chunks.size() != layout.num_chunks()) {
    return {fmt::format("plan: has records of {} parameter chunks, the model has {}",
                        plan.chunks.size(), layout.num_chunks())};
  }
  return Checker(plan, trace, layout, options).run();
}

}  // namespace ebb
