#include "scheduler/validate.h"

#include <algorithm>

#include "scheduler/validation_activations.h"
#include "scheduler/validation_memory.h"
#include "scheduler/validation_order.h"

namespace ebb {
namespace {

using validation::Activations;
using validation::Memory;
using validation::Order;
using validation::Report;

/// What has happened to the gradient of a parameter chunk.
struct Gradient {
  uint32_t num_contributions = 0, contributions_left = 0;
  uint32_t num_finishes = 0, num_stores = 0, num_updates = 0, num_carried_updates = 0;
};

/// A place at home for the gradient of one parameter chunk.
struct Slot {
  uint32_t owner = kNone;
  uint32_t num_parts = 0;
  uint32_t last_store = kNone;
  uint32_t update = kNone;
};

class Checker {
 public:
  Checker(const Plan& plan, const Trace& trace, const Layout& layout, const PlanOptions& options);
  std::vector<std::string> run();

 private:
  void count_contributions();
  ChunkRange weight_chunks(const ParameterUse& use) const;
  uint32_t num_parts(uint32_t parameter_chunk) const;

  void check(const Op& op);
  bool is_well_formed(const Op& op);
  void check_run(const Op& op);
  void contribute(const ParameterUse& use);
  void check_finish(uint32_t chunk);
  void read_sums(const Segment& segment);
  void check_move(const Op& op);
  void fill_slot(uint32_t chunk, uint32_t slot);
  void check_norm();
  void check_update(const Op& op);
  void expect_carried();
  void check_carried();
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

  std::vector<Gradient> gradients_;             // of parameter chunks
  std::vector<std::vector<bool>> contributed_;  // [parameter][use]
  std::vector<Slot> slots_;
  uint32_t next_moment_ = 0;
  uint32_t norm_ = kNone, last_finish_ = kNone, last_gradient_store_ = kNone;
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
              order_, report_),
      activations_(trace, layout, memory_, report_),
      gradients_(layout.num_chunks()),
      slots_(plan.num_gradient_slots) {
  count_contributions();
  expect_carried();
  memory_.expect_held(plan_.held_at_start);
}

// ---- The trace, read anew
// ---------------------------------------------------------------------------------------

ChunkRange Checker::weight_chunks(const ParameterUse& use) const {
  return layout_.chunks(Space::Weights, layout_.weight_elements(use.parameter, use.rows));
}

uint32_t Checker::num_parts(uint32_t c) const {
  const uint32_t parts = layout_.gradient_chunks_per_chunk();
  return std::min(parts, layout_.num_chunks(Space::Gradients) - c * parts);
}

void Checker::count_contributions() {
  sum_stored_.resize(layout_.num_chunks(Space::GradientSums), false);
  activations_stored_.resize(validation::num_arena_chunks(trace_, layout_.chunk_bytes()), false);
  contributed_.resize(layout_.num_parameters());
  for (ParameterId p = 0; p < layout_.num_parameters(); ++p) {
    contributed_[p].resize(layout_.parameter(p).num_uses, false);
  }
  for (const ParameterUse& use : trace_.uses) {
    if (!use.gradient) continue;
    contributed_[use.parameter].at(use.use) = true;
    const ChunkRange range = weight_chunks(use);
    for (uint32_t c = range.first; c < range.last; ++c) ++gradients_[c].num_contributions;
  }
  for (Gradient& g : gradients_) g.contributions_left = g.num_contributions;
}

// ---- Compute lane
// -----------------------------------------------------------------------------------------------

void Checker::check_run(const Op& op) {
  if (op.moment != next_moment_) {
    report_.complain("runs moment {}, the next is {}", op.moment, next_moment_);
  }
  if (op.moment >= trace_.moments.size()) return;
  next_moment_ = op.moment + 1;
  activations_.begin(op.moment);
  for (const ParameterUse& use : trace_.uses_of(trace_.moments[op.moment])) {
    const ElementRange weights = layout_.weight_elements(use.parameter, use.rows);
    if (use.weight) memory_.read(Space::Weights, weights.first, weights.count);
    if (use.gradient) contribute(use);
  }
  activations_.end(op.moment);
}

void Checker::contribute(const ParameterUse& use) {
  const ElementRange sums = layout_.sum_elements(use.parameter, use.use, use.rows);
  memory_.write(Space::GradientSums, sums.first, sums.count);
  const ChunkRange range = weight_chunks(use);
  for (uint32_t c = range.first; c < range.last; ++c) {
    if (gradients_[c].contributions_left > 0) --gradients_[c].contributions_left;
  }
}

void Checker::check_finish(uint32_t c) {
  Gradient& g = gradients_[c];
  if (g.num_contributions == 0) report_.complain("parameter chunk {} has no gradient", c);
  if (g.contributions_left > 0) {
    report_.complain("parameter chunk {} lacks {} contributions", c, g.contributions_left);
  }
  if (++g.num_finishes > 1) report_.complain("parameter chunk {} is finished again", c);
  for (const Segment& segment : layout_.segments(c)) read_sums(segment);
  memory_.write(Space::Gradients, c * layout_.chunk_elements(), layout_.chunk_elements(c));
  last_finish_ = report_.at();
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

// ---- Moves and updates
// ------------------------------------------------------------------------------------------

void Checker::check_move(const Op& op) {
  if (op.to == Tier::Device && op.from != Tier::Device) return memory_.bring(op);
  if (op.from != Tier::Device || op.to != Tier::Host) {
    return report_.complain("{} to {} is no move", name_of(op.from), name_of(op.to));
  }
  memory_.store(op);
  if (op.chunk.space == Space::GradientSums) sum_stored_[op.chunk.index] = true;
  if (op.chunk.space == Space::Activations) activations_stored_[op.chunk.index] = true;
  if (op.chunk.space == Space::Gradients) {
    fill_slot(op.chunk.index / layout_.gradient_chunks_per_chunk(), op.home_slot);
  }
}

void Checker::fill_slot(uint32_t c, uint32_t index) {
  last_gradient_store_ = report_.at();
  if (++gradients_[c].num_stores > num_parts(c)) {
    report_.complain("the gradient of parameter chunk {} goes home again", c);
  }
  if (index >= slots_.size()) {
    return report_.complain("gradient slot {} of {}", index, slots_.size());
  }
  Slot& slot = slots_[index];
  if (slot.owner != c || slot.update != kNone) {
    if (slot.owner != kNone && slot.update == kNone) {
      report_.complain("gradient slot {} holds parameter chunk {}, which is not updated yet", index,
                       slot.owner);
    }
    memory_.require_after(slot.update, fmt::format("reads gradient slot {}", index));
    slot = {.owner = c};
  }
  ++slot.num_parts;
  slot.last_store = report_.at();
}

void Checker::check_norm() {
  if (norm_ != kNone) report_.complain("the norm is made again");
  norm_ = report_.at();
  memory_.require_after(last_finish_, "finishes a gradient");
  memory_.require_after(last_gradient_store_, "takes a gradient home");
}

void Checker::check_update(const Op& op) {
  const uint32_t c = op.chunk.index;
  Gradient& g = gradients_[c];
  if (++(op.carried ? g.num_carried_updates : g.num_updates) > 1) {
    report_.complain("parameter chunk {} is updated again", c);
  }
  if (options_.update_after_norm && !op.carried) {
    if (norm_ == kNone) report_.complain("parameter chunk {} is updated before the norm", c);
    memory_.require_after(norm_, "makes the norm");
  }
  memory_.update_home(op);
  if (op.home_slot >= slots_.size()) {
    return report_.complain("gradient slot {} of {}", op.home_slot, slots_.size());
  }
  Slot& slot = slots_[op.home_slot];
  if (slot.owner != c || slot.update != kNone || slot.num_parts != num_parts(c)) {
    report_.complain("gradient slot {} does not hold the gradient of parameter chunk {}",
                     op.home_slot, c);
  }
  memory_.require_after(slot.last_store, fmt::format("fills gradient slot {}", op.home_slot));
  slot.update = report_.at();
}

// ---- Updates that are carried from step to step
// -----------------------------------------------------------------------------

/// A step begins as the one before it ended.
void Checker::expect_carried() {
  if (!options_.carry_updates && !plan_.carried.empty()) {
    report_.complain("carries {} updates into the next step", plan_.carried.size());
  }
  for (const CarriedUpdate& left : plan_.carried) {
    if (left.chunk >= gradients_.size() || left.gradient_slot >= slots_.size()) {
      report_.complain("carries the update of parameter chunk {}, gradient slot {}", left.chunk,
                       left.gradient_slot);
      continue;
    }
    memory_.expect_carried_update({Space::Weights, left.chunk});
    slots_[left.gradient_slot] = {.owner = left.chunk, .num_parts = num_parts(left.chunk)};
  }
}

void Checker::check_carried() {
  std::vector<bool> carried(gradients_.size(), false);
  for (const CarriedUpdate& left : plan_.carried) {
    if (left.chunk >= gradients_.size() || left.gradient_slot >= slots_.size()) continue;
    Gradient& g = gradients_[left.chunk];
    if (g.num_carried_updates == 0) {
      report_.complain("the carried update of parameter chunk {} is not made", left.chunk);
    }
    if (g.num_updates++ > 0) {
      report_.complain("parameter chunk {} is updated, and its update is carried", left.chunk);
    }
    const Slot& slot = slots_[left.gradient_slot];
    if (slot.owner != left.chunk || slot.update != kNone ||
        slot.num_parts != num_parts(left.chunk)) {
      report_.complain("ends without the gradient of parameter chunk {} in slot {}", left.chunk,
                       left.gradient_slot);
    }
    carried[left.chunk] = true;
  }
  for (uint32_t c = 0; c < gradients_.size(); ++c) {
    if (gradients_[c].num_carried_updates == 0 || carried[c]) continue;
    report_.complain("makes an update of parameter chunk {} that no step left over", c);
  }
}

// ---- The whole
// --------------------------------------------------------------------------------------------------

Lane lane_of(const Op& op) {
  switch (op.kind) {
    case OpKind::Run:
    case OpKind::Finish:
      return Lane::Compute;
    case OpKind::Update:
    case OpKind::Norm:
      return Lane::Update;
    case OpKind::Move:
      return op.to == Tier::Device ? Lane::Load : Lane::Store;
    case OpKind::Drop:
      break;
  }
  return Lane::Load;
}

bool Checker::is_well_formed(const Op& op) {
  if (op.lane != lane_of(op)) {
    report_.complain("is on lane {}, not {}", static_cast<int>(op.lane),
                     static_cast<int>(lane_of(op)));
  }
  const bool ends_gradient = op.kind == OpKind::Finish || op.kind == OpKind::Update;
  if (!options_.update && (ends_gradient || op.kind == OpKind::Norm)) {
    report_.complain("has no place in an evaluation");
  }
  if (op.kind == OpKind::Run || op.kind == OpKind::Norm) return true;
  if (memory_.exists(op.chunk) && (op.chunk.space == Space::Weights || !ends_gradient)) return true;
  report_.complain("names {} chunk {}", name_of(op.chunk.space), op.chunk.index);
  return false;
}

void Checker::check(const Op& op) {
  if (!is_well_formed(op)) return;
  switch (op.kind) {
    case OpKind::Run:
      return check_run(op);
    case OpKind::Finish:
      return check_finish(op.chunk.index);
    case OpKind::Update:
      return check_update(op);
    case OpKind::Norm:
      return check_norm();
    case OpKind::Move:
      return check_move(op);
    case OpKind::Drop:
      return memory_.drop(op);
  }
}

void Checker::check_end() {
  if (next_moment_ != trace_.moments.size()) {
    report_.complain("runs {} of {} moments", next_moment_, trace_.moments.size());
  }
  memory_.check_end(plan_.held_at_end);
  check_carried();
  if (!options_.update) return;
  for (uint32_t c = 0; c < gradients_.size(); ++c) {
    const Gradient& g = gradients_[c];
    if (g.num_contributions == 0) continue;
    if (g.num_finishes == 0) report_.complain("parameter chunk {} is never finished", c);
    if (g.num_stores < num_parts(c)) {
      report_.complain("the gradient of parameter chunk {} does not go home", c);
    }
    if (g.num_updates == 0) report_.complain("parameter chunk {} is never updated", c);
  }
  if (norm_ == kNone) return report_.complain("has no norm");
  for (uint32_t op : {last_finish_, last_gradient_store_}) {
    if (op != kNone && op > norm_) report_.complain("op {} comes after the norm, op {}", op, norm_);
  }
}

void Checker::check_counts() {
  const auto compare = [&](const char* what, size_t said, size_t counted) {
    if (said != counted) report_.complain("says {} {}, has {}", what, said, counted);
  };
  compare("blocks", plan_.num_blocks, options_.num_blocks);
  compare("peak blocks", plan_.peak_blocks, memory_.peak_blocks());
  compare("loaded bytes", plan_.loaded_bytes, memory_.loaded_bytes());
  compare("stored bytes", plan_.stored_bytes, memory_.stored_bytes());
  const auto compare_chunks = [&](Space space, const std::vector<uint32_t>& said,
                                  const std::vector<bool>& stored) {
    std::vector<uint32_t> counted;
    for (uint32_t c = 0; c < stored.size(); ++c) {
      if (stored[c]) counted.push_back(c);
    }
    if (said != counted) {
      report_.complain("says {} chunks of {} go home, {} do, or others", said.size(),
                       name_of(space), counted.size());
    }
  };
  compare_chunks(Space::GradientSums, plan_.sums_at_home, sum_stored_);
  compare_chunks(Space::Activations, plan_.activations_at_home, activations_stored_);
}

std::vector<std::string> Checker::run() {
  for (uint32_t i = 0; i < plan_.ops.size(); ++i) {
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
  return Checker(plan, trace, layout, options).run();
}

}  // namespace ebb
