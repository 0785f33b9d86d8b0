#include "autograd/tape.h"

#include <fmt/format.h>

#include "device/errors.h"
#include "device/kernels.h"

namespace ebb {

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {"forward", "backward", "evaluate"};
  return kNames[static_cast<int>(phase)];
}

// ---- Memory

Tape::Tape(Device& device, Stream& compute, Hooks& hooks, Arena& arena)
    : kernels_(device.kernels()), compute_(compute), hooks_(hooks), arena_(arena) {}

void Tape::submit(const AnyKernel& kernel) { kernels_.submit(compute_, kernel); }
void Tape::submit_own(const OwnKernel& kernel) { submit(AnyKernel(kernel)); }

Tensor Tape::tensor_at(size_t offset, Shape shape, DType type) const {
  return {arena_.base() + offset, type, shape};
}

Tensor Tape::value(const Variable& variable) const {
  if (!variable.has_gradient()) return variable.value;
  EBB_CHECK(static_cast<size_t>(variable.id) < values_.size(),
            "a call uses an inner value of a layer that has ended");
  const Value& value = values_[variable.id];
  check_usable(value);
  EBB_CHECK(value.live, "a call uses a value that was freed");
  if (options_.observer != nullptr) observe_use(variable.id);
  return tensor_at(value.offset, variable.value.shape, variable.value.dtype);
}

void Tape::observe_use(int32_t id) const {
  if (phase_ == Phase::Backward) return options_.observer->reads_in_backward(id);
  if (id < open_.first_value) options_.observer->reads_in_forward(id);
}

Variable Tape::output(Shape shape, DType type) {
  EBB_CHECK(open_.active, "output() outside of a call");
  Value value{.live = true, .dtype = type, .shape = shape};
  value.bytes = static_cast<size_t>(shape.num_elements()) * size_of(type);
  value.offset = arena_.allocate(value.bytes);
  values_.push_back(value);
  return {static_cast<int32_t>(values_.size() - 1), tensor_at(value.offset, shape, type)};
}

Variable Tape::output_in_place(const Variable& x) {
  EBB_CHECK(open_.active, "output_in_place() outside of a call");
  EBB_CHECK(x.has_gradient(), "an input cannot be changed in place");
  EBB_CHECK(static_cast<int32_t>(values_.size()) == open_.first_value,
            "an output in place must be the first output of its call");
  const Value value = values_[x.id];
  check_usable(value);
  EBB_CHECK(value.live && value.gradient < 0, "a value that was freed cannot be changed in place");
  values_[x.id].live = false;
  open_.in_place_of = x.id;
  if (options_.observer != nullptr) options_.observer->replaces(x.id);
  values_.push_back(value);
  return {static_cast<int32_t>(values_.size() - 1), x.value};
}

Tensor Tape::scratch(Shape shape, DType type) {
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * size_of(type);
  scratch_.push_back({arena_.allocate(bytes), bytes});
  return tensor_at(scratch_.back().first, shape, type);
}

int32_t Tape::new_gradient(const Value& value) {
  if (free_gradients_.empty()) {
    gradients_.emplace_back();
    free_gradients_.push_back(static_cast<int32_t>(gradients_.size() - 1));
  }
  const int32_t index = free_gradients_.back();
  free_gradients_.pop_back();
  gradients_[index] = {arena_.allocate(value.bytes), value.bytes, 1};
  return index;
}

void Tape::release_gradient(int32_t index) {
  GradientMemory& memory = gradients_[index];
  if (--memory.num_owners > 0) return;
  arena_.release(memory.offset, memory.bytes);
  free_gradients_.push_back(index);
}

void Tape::release_value(Value& value) {
  if (value.live) arena_.release(value.offset, value.bytes);
  value.live = value.idle = false;
}

void Tape::release_values(int32_t first) {
  while (static_cast<int32_t>(values_.size()) > first) {
    Value& value = values_.back();
    release_value(value);
    if (value.gradient >= 0) release_gradient(value.gradient);
    values_.pop_back();
  }
}

GradientTarget Tape::input_gradient(const Variable& variable) {
  EBB_CHECK(variable.has_gradient(), "an input has no gradient");
  Value& value = values_[variable.id];
  check_usable(value);
  const auto view = [&] {
    return tensor_at(gradients_[value.gradient].offset, value.shape, value.dtype);
  };
  if (value.gradient < 0) {
    value.gradient = new_gradient(value);
    return {view(), Write::Store};
  }
  if (gradients_[value.gradient].num_owners > 1) {  // accumulate_gradient() shared it: copy first
    const int32_t shared = value.gradient;
    const Tensor from = view();
    value.gradient = new_gradient(value);
    compute_.copy(view().data, from.data, from.bytes(), CopyKind::Within);
    release_gradient(shared);
  }
  return {view(), Write::Add};
}

// ---- Calls

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
  EBB_CHECK(!open_.active, fmt::format("{} opens a call inside of {}", name, open_.name));
  run_stages();
  EBB_CHECK(uses.size() <= kMaxUses, "a primitive uses too many parameters");
  open_ = {.name = name,
           .uses = {},
           .num_uses = static_cast<int>(uses.size()),
           .first_value = static_cast<int32_t>(values_.size()),
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
  if (options_.observer != nullptr) options_.observer->begin_call();
  hooks_.begin_call(name, phase, open_.all_uses());
}

void Tape::begin_call(std::string_view name, std::initializer_list<WeightUse> uses) {
  open(name, phase_, {uses.begin(), uses.size()}, false);
}

void Tape::begin_loss_call(std::string_view name, std::initializer_list<WeightUse> uses,
                           Phase phase) {
  EBB_CHECK(phase_ != Phase::Backward, "a loss inside of a recomputed layer");
  open(name, phase_ == Phase::Forward ? phase : phase_, {uses.begin(), uses.size()}, true);
}

Tensor Tape::weight(int i) { return hooks_.weight(open_.uses[i]); }

GradientTarget Tape::weight_gradient(int i) { return hooks_.gradient(open_.uses[i]); }

void Tape::end_call() {
  while (!scratch_.empty()) {
    arena_.release(scratch_.back().first, scratch_.back().second);
    scratch_.pop_back();
  }
  hooks_.end_call();
  open_.active = false;
}

void Tape::end_call(const ForwardFunction& forward, const BackwardFunction& backward) {
  ForwardFunction run = forward;
  run(Forward(*this, open_.all_uses()));
  if (recording_) {
    Record record{.forward = forward,
                  .backward = backward,
                  .of_layer = layer_at_work_,
                  .name = open_.name,
                  .uses = open_.uses,
                  .num_uses = open_.num_uses,
                  .first_value = open_.first_value,
                  .num_values = static_cast<int32_t>(values_.size()) - open_.first_value,
                  .in_place_of = open_.in_place_of};
    for (int i = 0; i < record.num_uses; ++i) {
      record.uses[i].weight = open_.read_in_backward[i];
      record.uses[i].gradient = true;
    }
    records_.push_back(record);
    if (options_.observer != nullptr) observe_outputs();
  }
  end_call();
}

void Tape::observe_outputs() {
  std::vector<size_t> bytes;
  for (size_t i = open_.first_value; i < values_.size(); ++i) bytes.push_back(values_[i].bytes);
  options_.observer->end_call(open_.name, open_.first_value, bytes);
}

void Tape::run_in_stages(uint32_t count, const StageFunction& body) {
  run_stages();
  stages_ = {.body = body, .count = count};
  run_stage();
  if (layer_at_work_ >= 0 || phase_ == Phase::Backward) run_stages();
}

void Tape::run_stages() {
  while (has_stage()) run_stage();
}

/// The stages leave stages_ while one of them runs, because its call would run the others first.
void Tape::run_stage() {
  Stages stages = std::exchange(stages_, {});
  EBB_CHECK(stages.next < stages.count, "there is no stage to run");
  stages.body(stages.next++);
  EBB_CHECK(!has_stage(), "a stage may not leave stages");
  if (stages.next < stages.count) stages_ = stages;
}

void Tape::release_outputs(size_t index) {
  const Record& record = records_[index];
  EBB_CHECK(record.forward, "only the outputs of a call can be released");
  for (int32_t i = 0; i < record.num_values; ++i) release_value(values_[record.first_value + i]);
}

void Tape::replay_call(size_t index) {
  Record& record = records_[index];
  EBB_CHECK(record.forward && record.num_values > 0 && !open_.active,
            "only a call with outputs can be replayed, and not inside of another call");
  EBB_CHECK(!values_[record.first_value].live, "a replayed call still has its outputs");
  open_ = {.name = record.name, .uses = record.uses, .num_uses = record.num_uses, .active = true};
  for (ParameterUse& use : open_.uses) use.weight = true, use.gradient = false;
  hooks_.begin_call(record.name, Phase::Backward, open_.all_uses());
  for (int32_t i = 0; i < record.num_values; ++i) {
    Value& output = values_[record.first_value + i];
    output.live = true;
    if (i > 0 || record.in_place_of < 0) {
      output.offset = arena_.allocate(output.bytes);
      continue;
    }
    Value& input = values_[record.in_place_of];
    EBB_CHECK(std::exchange(input.live, false), "the input of a call in place was not made again");
    output.offset = input.offset;
  }
  record.forward(Forward(*this, open_.all_uses()));
  end_call();
}

// ---- Backward

void Tape::check_usable(const Value& value) const {
  if (!value.idle && !value.recomputed_later) return;
  throw ConfigError(
      "the input or an inner value of a layer is used after the next layer; end the layer after "
      "that use, or choose `activations` device and `recompute` none or layer");
}

void Tape::run_record(Record& record) {
  bool any_gradient = false;
  for (size_t i = record.first_value; i < values_.size(); ++i)
    any_gradient |= values_[i].gradient >= 0;
  if (!any_gradient) return;
  layer_at_work_ = record.of_layer;
  const std::span<const ParameterUse> uses(record.uses.data(), record.num_uses);
  hooks_.begin_call(record.name, Phase::Backward, uses);
  record.backward(Backward(*this, uses));
  end_call();
}

void Tape::run_backward_to(size_t num_records) {
  while (records_.size() > num_records) {
    if (records_.back().kind == RecordKind::WholeLayer) {
      const size_t count = records_.back().num_layers_before + 1;
      const size_t first = records_.size() - count;
      run_layers(first, count);
      release_values(records_[first].first_value);
      records_.resize(first);
      continue;
    }
    Record record = records_.back();
    records_.pop_back();
    if (record.kind == RecordKind::Needed) {
      mark_layer_needed(record);
      continue;
    }
    if (record.kind == RecordKind::RunAgain) {
      run_listed(record);
      continue;
    }
    run_record(record);
    release_values(record.first_value);
  }
}

void Tape::begin_micro_batch(const TapeOptions& options, Tensor loss_total,
                             float loss_gradient_scale) {
  EBB_CHECK(values_.empty() && records_.empty() && !open_.active,
            "the last micro-batch was not finished");
  options_ = options;
  recording_ = options.training;
  phase_ = options.training ? Phase::Forward : Phase::Evaluate;
  loss_total_ = loss_total;
  loss_write_ = Write::Store;
  loss_gradient_scale_ = loss_gradient_scale;
  num_losses_stored_ = 0;
  uses_of_parameter_.assign(uses_of_parameter_.size(), 0);
  use_log_.clear();
  replaying_uses_ = false;
  parts_.assign(1, 0);
  stages_ = {};
  shared_.clear();
  num_layers_ = 0;
  layer_at_work_ = -1;
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
  run_stages();
  if (options_.training) phase_ = Phase::Backward;
  recording_ = false;
}

void Tape::backward_of_part() {
  run_backward_to(parts_.back());
  parts_.pop_back();
}

void Tape::end_micro_batch() { release_values(0); }

}  // namespace ebb
