#include "autograd/tape.h"

#include <fmt/format.h>

#include "device/errors.h"

namespace ebb {

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {"forward", "backward", "evaluate"};
  return kNames[static_cast<int>(phase)];
}

// ---- Memory
// -----------------------------------------------------------------------------------------------------

Tape::Tape(Device& device, Stream& compute, Hooks& hooks, Arena& arena)
    : kernels_(device.kernels()), compute_(compute), hooks_(hooks), arena_(arena) {}

Tensor Tape::tensor_at(size_t offset, Shape shape, DType type) const {
  return {arena_.base() + offset, type, shape};
}

Variable Tape::output(Shape shape, DType type) {
  EBB_CHECK(open_.active, "output() outside a moment");
  Slot slot{.live = true, .dtype = type, .shape = shape};
  slot.bytes = static_cast<size_t>(shape.num_elements()) * size_of(type);
  slot.offset = arena_.allocate(slot.bytes);
  slots_.push_back(slot);
  return {static_cast<int32_t>(slots_.size() - 1), tensor_at(slot.offset, shape, type)};
}

Variable Tape::output_in_place(const Variable& x) {
  EBB_CHECK(open_.active, "output_in_place() outside a moment");
  EBB_CHECK(x.has_gradient(), "an input stays as it is");
  const Slot slot = slots_[x.id];
  check_usable(slot);
  EBB_CHECK(slot.live && slot.gradient < 0, "a value that is gone cannot be changed in place");
  slots_[x.id].live = false;
  slots_.push_back(slot);
  return {static_cast<int32_t>(slots_.size() - 1), x.value};
}

Tensor Tape::scratch(Shape shape, DType type) {
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * size_of(type);
  scratch_.push_back({arena_.allocate(bytes), bytes});
  return tensor_at(scratch_.back().first, shape, type);
}

int32_t Tape::new_gradient(const Slot& slot) {
  if (free_gradients_.empty()) {
    gradients_.emplace_back();
    free_gradients_.push_back(static_cast<int32_t>(gradients_.size() - 1));
  }
  const int32_t index = free_gradients_.back();
  free_gradients_.pop_back();
  gradients_[index] = {arena_.allocate(slot.bytes), slot.bytes, 1};
  return index;
}

void Tape::release_gradient(int32_t index) {
  GradientMemory& memory = gradients_[index];
  if (--memory.num_owners > 0) return;
  arena_.release(memory.offset, memory.bytes);
  free_gradients_.push_back(index);
}

void Tape::release_value(Slot& slot) {
  if (slot.live) arena_.release(slot.offset, slot.bytes);
  slot.live = slot.resting = false;
}

void Tape::release_slots(int32_t first) {
  while (static_cast<int32_t>(slots_.size()) > first) {
    Slot& slot = slots_.back();
    release_value(slot);
    if (slot.gradient >= 0) release_gradient(slot.gradient);
    slots_.pop_back();
  }
}

GradientSlot Tape::input_gradient(const Variable& variable) {
  EBB_CHECK(variable.has_gradient(), "an input has no gradient");
  Slot& slot = slots_[variable.id];
  check_usable(slot);
  const auto view = [&] {
    return tensor_at(gradients_[slot.gradient].offset, slot.shape, slot.dtype);
  };
  if (slot.gradient < 0) {
    slot.gradient = new_gradient(slot);
    return {view(), Write::Store};
  }
  if (gradients_[slot.gradient].num_owners > 1) {  // shared by pass_gradient: make it our own first
    const int32_t shared = slot.gradient;
    const Tensor from = view();
    slot.gradient = new_gradient(slot);
    compute_.copy(view().data, from.data, from.bytes(), CopyKind::Within);
    release_gradient(shared);
  }
  return {view(), Write::Add};
}

// ---- Moments
// ----------------------------------------------------------------------------------------------------

uint32_t Tape::next_use_index(const WeightUse& use) {
  if (replaying_uses_) return use_log_[use_cursor_++];
  const ParameterId id = use.parameter;
  if (id >= uses_of_parameter_.size()) uses_of_parameter_.resize(id + 1, 0);
  EBB_CHECK(!use.continues || uses_of_parameter_[id] > 0, "there is no use to continue");
  if (!use.continues) ++uses_of_parameter_[id];
  use_log_.push_back(uses_of_parameter_[id] - 1);
  return use_log_.back();
}

void Tape::open(std::string_view name, Phase phase, std::span<const WeightUse> uses,
                bool gradients_now) {
  EBB_CHECK(!open_.active, fmt::format("{} opens a moment inside {}", name, open_.name));
  EBB_CHECK(uses.size() <= kMaxUses, "a primitive uses too many parameters");
  open_ = {.name = name,
           .uses = {},
           .num_uses = static_cast<int>(uses.size()),
           .first_slot = static_cast<int32_t>(slots_.size()),
           .active = true};
  for (int i = 0; i < open_.num_uses; ++i) {
    const WeightUse use = std::data(uses)[i];
    open_.uses[i] = {.parameter = use.parameter,
                     .use = next_use_index(use),
                     .weight = true,
                     .gradient = gradients_now && options_.training,
                     .rows = use.rows};
    open_.read_in_backward[i] = use.read_in_backward;
  }
  hooks_.begin_moment(name, phase, std::span(open_.uses).first(open_.num_uses));
}

void Tape::begin_moment(std::string_view name, std::initializer_list<WeightUse> uses) {
  open(name, phase_, {uses.begin(), uses.size()}, false);
}

void Tape::begin_loss_moment(std::string_view name, std::initializer_list<WeightUse> uses,
                             Phase phase) {
  EBB_CHECK(phase_ != Phase::Backward, "a loss inside a recomputed block");
  open(name, phase_ == Phase::Forward ? phase : phase_, {uses.begin(), uses.size()}, true);
}

Tensor Tape::weight(int i) { return hooks_.weight(open_.uses[i]); }

GradientSlot Tape::weight_gradient(int i) { return hooks_.gradient(open_.uses[i]); }

void Tape::end_moment() {
  while (!scratch_.empty()) {
    arena_.release(scratch_.back().first, scratch_.back().second);
    scratch_.pop_back();
  }
  hooks_.end_moment();
  open_.active = false;
  in_new_segment_ = false;
  if (in_block_ && keeps_block()) pass_boundary();
}

void Tape::end_moment(const BackwardFunction& backward) {
  if (recording_) {
    Record record{.backward = backward,
                  .name = open_.name,
                  .uses = open_.uses,
                  .num_uses = open_.num_uses,
                  .first_slot = open_.first_slot};
    for (int i = 0; i < record.num_uses; ++i) {
      record.uses[i].weight = open_.read_in_backward[i];
      record.uses[i].gradient = true;
    }
    records_.push_back(record);
  }
  end_moment();
}

// ---- Blocks and backward
// ----------------------------------------------------------------------------------------

Variable Tape::block(const BlockFunction& body, Variable input) {
  return block(body, input, false);
}

void Tape::pass_block(const BlockFunction& body, Variable& x) { x = block(body, x, true); }

Variable Tape::block(const BlockFunction& body, Variable input, bool ends_input) {
  if (in_block_ || phase_ == Phase::Backward) return run_as_block(body, input);
  pass_boundary();
  in_block_ = true;
  ++num_blocks_;
  const int32_t first = static_cast<int32_t>(slots_.size());
  const Variable result = run_as_block(body, input);
  in_block_ = false;
  if (options_.rest && recording_) rest_behind_block(input, result, first);
  if (ends_input && !options_.training && input.has_gradient()) release(input);
  pass_boundary();
  return result;
}

void Tape::pass_boundary() {
  if (in_new_segment_) return;
  in_new_segment_ = true;
  segments_.push_back(records_.size());
  if (options_.boundary != nullptr) options_.boundary->reached();
}

Variable Tape::run_as_block(const BlockFunction& body, Variable input) {
  BlockFunction run = body;
  if (options_.training && !recomputes()) return run(*this, input);
  const bool was_recording = recording_;
  const int32_t first = static_cast<int32_t>(slots_.size());
  const size_t first_use_log = replaying_uses_ ? use_cursor_ : use_log_.size();
  recording_ = false;
  Variable result = run(*this, input);
  recording_ = was_recording;
  EBB_CHECK(result.id >= first, "a block must return a value it made");
  const Slot kept = slots_[result.id];
  slots_[result.id].live = false;
  release_slots(first);
  slots_.push_back(kept);
  result.id = first;
  if (recording_) record_block(body, input, result, first_use_log);
  return result;
}

/// A block that takes the result of the one before it may be recomputed with it: that result is
/// then forgotten.
void Tape::record_block(const BlockFunction& body, Variable input, Variable result,
                        size_t first_use) {
  uint32_t num_before = 0;
  if (phase_ == Phase::Forward && !records_.empty() && records_.back().block &&
      records_.back().block_output.id == input.id && slots_[input.id].gradient < 0) {
    num_before = (records_.back().num_blocks_before + 1) % options_.recompute;
  }
  if (num_before > 0) {
    release_value(slots_[input.id]);
    slots_[input.id].forgotten = true;
  }
  records_.push_back(Record{.block = body,
                            .block_input = input,
                            .block_output = result,
                            .num_blocks_before = num_before,
                            .first_use_log = first_use,
                            .first_slot = result.id});
}

// ---- Rest: from the end of the forward that used a value last to the backward that needs it
// ---------------------------------------------------------------------------------------------

void Tape::rest(Slot& slot) {
  if (!slot.live || slot.resting) return;
  arena_.rest(slot.offset, slot.bytes);
  slot.resting = true;
}

void Tape::wake(Slot& slot) {
  if (!slot.resting) return;
  arena_.wake(slot.offset, slot.bytes);
  slot.resting = false;
}

/// All that the block made but its result, and what it was given.
void Tape::rest_behind_block(Variable input, Variable result, int32_t first) {
  if (input.has_gradient()) rest(slots_[input.id]);
  for (int32_t id = first; id < static_cast<int32_t>(slots_.size()); ++id) {
    if (id != result.id) rest(slots_[id]);
  }
  if (recomputes()) return;  // its record says enough
  records_.push_back(Record{.block_input = input,
                            .block_output = {static_cast<int32_t>(slots_.size()), {}},
                            .wakes = true,
                            .first_slot = first});
}

void Tape::wake_block(const Record& record) {
  if (record.block_input.has_gradient()) wake(slots_[record.block_input.id]);
  for (int32_t id = record.first_slot; id < record.block_output.id; ++id) wake(slots_[id]);
}

void Tape::check_usable(const Slot& slot) const {
  if (!slot.resting && !slot.forgotten) return;
  throw ConfigError(
      "a value that a block took or made is used behind the block that takes its result; end the "
      "block there, or use --activations device and --recompute none or block");
}

void Tape::run_record(Record& record) {
  bool any_gradient = false;
  for (size_t i = record.first_slot; i < slots_.size(); ++i)
    any_gradient |= slots_[i].gradient >= 0;
  if (!any_gradient) return;
  const std::span<const ParameterUse> uses(record.uses.data(), record.num_uses);
  hooks_.begin_moment(record.name, Phase::Backward, uses);
  record.backward(Backward(*this, uses));
  end_moment();
}

/// Blocks that follow each other, by their records: which stay where they are meanwhile.
void Tape::run_blocks(size_t first_record, size_t count) {
  const size_t last_record = first_record + count - 1;
  Slot& output = slots_[records_[last_record].block_output.id];
  release_value(output);
  const int32_t gradient = std::exchange(output.gradient, -1);
  Variable x = records_[first_record].block_input;
  if (x.has_gradient()) wake(slots_[x.id]);
  if (gradient < 0) return;
  const size_t num_records = records_.size();
  const int32_t first_slot = static_cast<int32_t>(slots_.size());
  const bool was_replaying = std::exchange(replaying_uses_, true);
  const size_t was_at = use_cursor_;
  recording_ = true;
  for (size_t i = first_record; i <= last_record; ++i) {
    use_cursor_ = records_[i].first_use_log;
    BlockFunction body = records_[i].block;
    x = body(*this, x);
  }
  recording_ = false;
  use_cursor_ = was_at;
  replaying_uses_ = was_replaying;
  slots_[x.id].gradient = gradient;
  run_backward_to(num_records);
  release_slots(first_slot);
}

void Tape::run_backward_to(size_t num_records) {
  while (records_.size() > num_records) {
    if (records_.back().block) {
      const size_t count = records_.back().num_blocks_before + 1;
      const size_t first = records_.size() - count;
      run_blocks(first, count);
      release_slots(records_[first].first_slot);
      records_.resize(first);
      continue;
    }
    Record record = records_.back();
    records_.pop_back();
    if (record.wakes) {
      wake_block(record);
      continue;
    }
    run_record(record);
    release_slots(record.first_slot);
  }
}

void Tape::begin_micro_batch(const TapeOptions& options, Tensor loss_total, Write loss_write,
                             float loss_gradient_scale) {
  EBB_CHECK(slots_.empty() && records_.empty() && !open_.active,
            "the last micro-batch was not finished");
  options_ = options;
  recording_ = options.training;
  phase_ = options.training ? Phase::Forward : Phase::Evaluate;
  loss_total_ = loss_total;
  loss_write_ = loss_write;
  loss_gradient_scale_ = loss_gradient_scale;
  num_losses_shown_ = 0;
  uses_of_parameter_.assign(uses_of_parameter_.size(), 0);
  use_log_.clear();
  replaying_uses_ = false;
  in_block_ = false;
  in_new_segment_ = true;
  segments_.assign(1, 0);
  num_blocks_ = 0;
}

Dropout Tape::dropout_at(uint32_t site, int64_t num_samples) const {
  if (!options_.training || !options_.dropout) return {};
  EBB_CHECK(site <= UINT16_MAX, "a model has at most 65536 places of dropout");
  Dropout dropout = options_.dropout;
  dropout.first_sample = options_.micro_batch * static_cast<uint32_t>(num_samples);
  dropout.site = static_cast<uint16_t>(site);
  return dropout;
}

void Tape::begin_backward() {
  if (options_.training) phase_ = Phase::Backward;
  recording_ = false;
}

void Tape::run_backward(size_t segment) { run_backward_to(segments_[segment]); }

void Tape::end_micro_batch() { release_slots(0); }

}  // namespace ebb
