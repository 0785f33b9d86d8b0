#include "scheduler/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/arena.h"
#include "autograd/micro_batches.h"
#include "autograd/tape.h"
#include "device/planes.h"
#include "scheduler/run/device_state.h"
#include "scheduler/run/executor.h"
#include "scheduler/run/optimizer.h"
#include "scheduler/run/state.h"
#include "scheduler/search/memory_sizes.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

std::vector<bool> trained_parameters(const Layout& layout, const Trace& trace) {
  std::vector<bool> trained(layout.num_parameters(), false);
  for (const ParameterUse& use : trace.uses) {
    if (use.gradient) trained[use.parameter] = true;
  }
  return trained;
}

uint64_t count_targets(std::span<const MicroBatch> micro_batches) {
  uint64_t count = 0;
  for (const MicroBatch& batch : micro_batches) count += batch.num_targets;
  return count;
}

}  // namespace

/// Memory is declared before the executor, which has the streams. So the destructor waits for all
/// submitted work before it frees memory.
class Trainer::Impl {
 public:
  Impl(const Model& model, Device& device, const Preparation& prepared);

  StepResult step(std::span<const MicroBatch> micro_batches, double learning_rate);
  double evaluate(std::span<const MicroBatch> micro_batches);
  /// Makes the deferred updates of the last step, and drops resident weights whose state is in host
  /// memory. To be called before any other access to the state.
  void flush();
  StateReader lock_state();
  void restore(const OptimizerCounters& counters, const ReadPlane& read);

  const OptimizerCounters& counters() const { return optimizer_.counters(); }
  /// Waits until no StateReader locks the state.
  void wait_for_readers() { optimizer_.state_lock().wait_for_all(); }
  std::span<const OpTime> last_step_times() const { return executor_.times(); }
  State& state() { return state_; }
  const Layout& layout() const { return layout_; }

 private:
  void initialise_device(Kernels& kernels);
  void run(std::span<const MicroBatch> micro_batches, bool training, float loss_gradient_scale);
  ExecutorStats run_step(std::span<const MicroBatch> micro_batches, double learning_rate,
                         float loss_gradient_scale);
  ExecutorStats run_without_calls(const Plan& plan);
  uint64_t check(std::span<const MicroBatch> micro_batches, size_t num_expected) const;
  void upload_all(std::span<const MicroBatch> micro_batches);
  void upload(const MicroBatch& batch, size_t index);
  void send_loss_home();
  double total_loss() const;

  const Preparation& prepared_;
  const bool emulates_compute_;
  const Trace no_calls_ = {};  // of plans that contain no calls
  const Layout& layout_;
  FixedMemory fixed_;
  std::vector<InputSpec> specs_;
  // Allocated before home_, which pins as much memory as the limit on pinned memory still allows.
  Buffer host_inputs_, host_loss_;
  DeviceSpaces spaces_;
  DeviceState device_state_;
  Home home_;
  State state_;
  Buffer device_inputs_, device_loss_;
  std::vector<Tensor> input_views_;
  std::unique_ptr<Event> inputs_ready_, loss_ready_;
  Optimizer optimizer_;
  Executor executor_;
  Arena arena_;
  MicroBatches micro_batches_;
  enum class Condition : uint8_t {
    Good,
    Stopped,  // a plan threw: no other plan can run, but the state in host memory is complete
    Lost      // a plan threw, and the state is incomplete
  } condition_ = Condition::Good;
};

Trainer::Impl::Impl(const Model& model, Device& device, const Preparation& prepared)
    : prepared_(prepared),
      emulates_compute_(device.info().emulate_compute.has_value()),
      layout_(*prepared.layout),
      fixed_(fixed_memory(model, prepared.options, layout_, prepared.trace,
                          prepared.evaluation_trace)),
      specs_(model.inputs()),
      host_inputs_(device.allocate(MemoryKind::Pinned, fixed_.input_bytes, "inputs")),
      host_loss_(device.allocate(MemoryKind::Pinned, sizeof(double), "loss")),
      spaces_(device, layout_, prepared.num_blocks,
              std::max(prepared.trace.arena_bytes, prepared.evaluation_trace.arena_bytes)),
      device_state_(device, layout_, prepared.plan.device_updates, spaces_.base(Space::Weights)),
      home_(device, layout_, state_planes(prepared.options.dtype), home_options(prepared.plan)),
      state_(layout_, home_, device_state_),
      device_inputs_(device.allocate(MemoryKind::Device, fixed_.input_bytes, "inputs")),
      device_loss_(device.allocate(MemoryKind::Device, sizeof(double), "loss")),
      inputs_ready_(device.create_event()),
      loss_ready_(device.create_event()),
      optimizer_(device, layout_, spaces_, home_, state_, device_state_,
                 trained_parameters(layout_, prepared.trace), prepared.plan, prepared.options),
      executor_(device, layout_, spaces_, home_, optimizer_,
                static_cast<uint32_t>(
                    std::max(prepared.plan.ops.size(), prepared.evaluation_plan.ops.size()))),
      arena_(spaces_.base(Space::Activations),
             std::max(prepared.trace.arena_bytes, prepared.evaluation_trace.arena_bytes)),
      micro_batches_(
          model, device, executor_.compute(), executor_, arena_,
          prepared.schedule.micro_batch_order == MicroBatchOrder::Vertical,
          std::max(prepared.options.gradient_accumulation, prepared.options.evaluation_batches)) {
  check_device(prepared.device, device.info().profile);
  device.reserve_workspace(fixed_.workspace_bytes);
  initialise_device(device.kernels());
  ThreadTeam team(device.info().profile.num_threads);
  if (prepared.options.random_weights) {
    state_.initialise(model.parameters(), prepared.options.seed, team);
  }
}

/// Fills the blocks of chunks with device updates with zeros. Host memory is zero when it is
/// allocated, so both start with the same state.
void Trainer::Impl::initialise_device(Kernels& kernels) {
  const Plan& plan = prepared_.initialise_plan;
  if (plan.ops.empty()) return;
  executor_.begin(no_calls_, plan);
  executor_.finish();
  for (const ResidentChunk& resident : plan.resident_at_end) {
    const auto elements = static_cast<int64_t>(layout_.chunk_elements());
    kernels.fill_zero(
        executor_.compute(),
        {spaces_.address({Space::Weights, resident.chunk}), layout_.weight_type(), {elements}});
  }
  executor_.compute().synchronize();
}

void Trainer::Impl::upload(const MicroBatch& batch, size_t index) {
  EBB_CHECK(batch.inputs.size() == specs_.size(), "a micro-batch has the wrong number of inputs");
  size_t offset = index * fixed_.micro_batch_bytes;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const Tensor& from = batch.inputs[i];
    EBB_CHECK(from.dtype == specs_[i].dtype && from.shape == specs_[i].shape,
              fmt::format("input '{}' has the wrong type or shape", specs_[i].name));
    std::memcpy(host_inputs_.data() + offset, from.data, from.bytes());
    input_views_.push_back({device_inputs_.data() + offset, from.dtype, from.shape});
    offset += padded_bytes(from.bytes());
  }
}

/// Checks and copies all inputs before the plan begins, so that a wrong input does no harm.
void Trainer::Impl::upload_all(std::span<const MicroBatch> micro_batches) {
  input_views_.clear();
  for (size_t k = 0; k < micro_batches.size(); ++k) upload(micro_batches[k], k);
  executor_.load().copy(device_inputs_.data(), host_inputs_.data(),
                        micro_batches.size() * fixed_.micro_batch_bytes, CopyKind::Load);
  executor_.load().record(*inputs_ready_);
  executor_.compute().wait(*inputs_ready_);
}

void Trainer::Impl::run(std::span<const MicroBatch> micro_batches, bool training,
                        float loss_gradient_scale) {
  micro_batches_.run(
      {.count = static_cast<uint32_t>(micro_batches.size()),
       .tape = tape_options(prepared_.options, prepared_.schedule, training, optimizer_.step()),
       .inputs = input_views_,
       .loss_total = {device_loss_.data(), DType::F64, {1}},
       .loss_gradient_scale = loss_gradient_scale});
  send_loss_home();
}

void Trainer::Impl::send_loss_home() {
  executor_.compute().record(*loss_ready_);
  executor_.store().wait(*loss_ready_);
  executor_.store().copy(host_loss_.data(), device_loss_.data(), sizeof(double), CopyKind::Store);
}

double Trainer::Impl::total_loss() const {
  if (emulates_compute_) return kNotANumber;
  return *reinterpret_cast<const double*>(host_loss_.data());
}

/// Checks the numbers of micro-batches and of targets, and returns the number of targets.
uint64_t Trainer::Impl::check(std::span<const MicroBatch> micro_batches,
                              size_t num_expected) const {
  EBB_CHECK(
      micro_batches.size() == num_expected && !micro_batches.empty(),
      fmt::format(
          "{} micro-batches were given, but the plan is for {}: see gradient_accumulation and "
          "evaluation_batches",
          micro_batches.size(), num_expected));
  const uint64_t num_targets = count_targets(micro_batches);
  if (num_targets == 0)
    throw NumericError("the micro-batches have no targets, so there is no mean loss");
  return num_targets;
}

StepResult Trainer::Impl::step(std::span<const MicroBatch> micro_batches, double learning_rate) {
  EBB_CHECK(condition_ == Condition::Good,
            "an earlier step or evaluation threw: no step can follow");
  StepResult result;
  result.num_targets = check(micro_batches, prepared_.options.gradient_accumulation);
  const Plan& plan = prepared_.plan;
  if (executor_.resident_chunks() < plan.resident_at_start.size()) {
    result.step_s = run_without_calls(prepared_.warm_up_plan).total_s;
    result.loaded_bytes = prepared_.warm_up_plan.loaded_bytes;
  }
  upload_all(micro_batches);
  result.loss_scale = optimizer_.loss_scale();
  const ExecutorStats stats =
      run_step(micro_batches, learning_rate,
               static_cast<float>(result.loss_scale / static_cast<double>(result.num_targets)));
  result.loss = total_loss() / static_cast<double>(result.num_targets);
  result.grad_norm = emulates_compute_ ? kNotANumber : optimizer_.grad_norm();
  result.skipped = optimizer_.skipped();
  result.step_s += stats.total_s;
  result.compute_s = stats.compute_s;
  result.stall_s = stats.stall_s;
  result.update_s = stats.update_s;
  result.overlap_s = stats.overlap_s;
  result.loaded_bytes += plan.loaded_bytes;
  result.stored_bytes = plan.stored_bytes;
  result.speculated_chunks = optimizer_.speculation().num_made();
  result.rolled_back_chunks = optimizer_.speculation().num_rolled_back();
  if (result.skipped &&
      optimizer_.counters().num_skipped_in_a_row >= prepared_.options.max_skipped_steps) {
    throw NumericError(fmt::format(
        "the gradient norm was not a number in {} steps in a row; the first such tensor is {}; the "
        "weights are those before these steps; try a lower --lr or --dtype fp32",
        optimizer_.counters().num_skipped_in_a_row, optimizer_.first_bad_tensor()));
  }
  return result;
}

ExecutorStats Trainer::Impl::run_step(std::span<const MicroBatch> micro_batches,
                                      double learning_rate, float loss_gradient_scale) {
  // An update that waits for the state lock waits until the reader has copied state from the
  // device. Such a copy may be queued behind the compute stream's wait for the update and then
  // never run. So this thread waits for host work itself (Device::block_submitting_thread).
  const bool reader_copies_from_device =
      !device_state_.chunks().empty() && optimizer_.state_lock().is_locked();
  optimizer_.begin_step(learning_rate);
  try {
    executor_.begin(prepared_.trace, prepared_.plan, reader_copies_from_device);
    run(micro_batches, true, loss_gradient_scale);
    return executor_.finish();
  } catch (...) {
    const std::exception_ptr bad_data = executor_.cancel();
    condition_ = optimizer_.roll_back() ? Condition::Stopped : Condition::Lost;
    if (bad_data) std::rethrow_exception(bad_data);
    throw;
  }
}

ExecutorStats Trainer::Impl::run_without_calls(const Plan& plan) {
  try {
    executor_.begin(no_calls_, plan);
    return executor_.finish();
  } catch (...) {
    executor_.cancel();
    condition_ = Condition::Lost;
    throw;
  }
}

double Trainer::Impl::evaluate(std::span<const MicroBatch> micro_batches) {
  const uint64_t num_targets = check(micro_batches, prepared_.options.evaluation_batches);
  flush();
  upload_all(micro_batches);
  try {
    executor_.begin(prepared_.evaluation_trace, prepared_.evaluation_plan);
    run(micro_batches, false, 0);
    executor_.finish();
  } catch (...) {
    executor_.cancel();
    condition_ = device_state_.chunks().empty() ? Condition::Stopped : Condition::Lost;
    throw;
  }
  return total_loss() / static_cast<double>(num_targets);
}

void Trainer::Impl::flush() {
  EBB_CHECK(condition_ != Condition::Lost,
            "an earlier step or evaluation threw: the state is lost");
  if (condition_ == Condition::Stopped) return;
  const bool is_resident = executor_.resident_chunks() > device_state_.chunks().size();
  if (!optimizer_.has_deferred() && !is_resident) return;
  run_without_calls(prepared_.flush_plan);
  optimizer_.forget_deferred();
}

/// The reader releases parameters in the order in which updates change them. Updates that wait for
/// the norm come in the order of the next forward, other updates in the order of the backward.
StateReader Trainer::Impl::lock_state() {
  flush();
  const std::span<const ParameterId> order = layout_.call_order();
  std::vector<ParameterId> parts(order.begin(), order.end());
  if (!updates_after_norm(prepared_.options)) std::ranges::reverse(parts);
  std::vector<uint32_t> parts_of_chunk(layout_.num_chunks(), 0);
  for (uint32_t i = 0; i < parts.size(); ++i) {
    const ParameterId id = parts[i];
    const ChunkRange chunks =
        layout_.chunks(Space::Weights, layout_.first_element(id), layout_.num_elements(id));
    for (uint32_t c = chunks.first; c < chunks.last; ++c) parts_of_chunk[c] = i + 1;
  }
  optimizer_.state_lock().open(std::move(parts_of_chunk));
  return {layout_, state_, optimizer_.state_lock(), optimizer_.counters(), std::move(parts)};
}

void Trainer::Impl::restore(const OptimizerCounters& counters, const ReadPlane& read) {
  flush();
  wait_for_readers();
  for (const ParameterId id : layout_.call_order()) {
    for (size_t plane = 0; plane < state_planes(layout_.weight_type()).size(); ++plane) {
      state_.visit_plane(id, plane, true,
                         [&](std::span<std::byte> into) { read(id, plane, into); });
    }
  }
  optimizer_.restore(counters);
}

Trainer::Trainer(const Model& model, Device& device, const Preparation& prepared)
    : impl_(std::make_unique<Impl>(model, device, prepared)) {}
Trainer::~Trainer() = default;

StepResult Trainer::step(std::span<const MicroBatch> micro_batches, double learning_rate) {
  return impl_->step(micro_batches, learning_rate);
}
double Trainer::evaluate(std::span<const MicroBatch> micro_batches) {
  return impl_->evaluate(micro_batches);
}
std::span<const OpTime> Trainer::last_step_times() const { return impl_->last_step_times(); }
int64_t Trainer::num_updates() const { return impl_->counters().num_updates; }
uint64_t Trainer::num_skipped() const { return impl_->counters().num_skipped; }
uint64_t Trainer::state_hash() const {
  impl_->flush();
  return impl_->state().hash();
}

std::vector<float> Trainer::read_parameter(std::string_view name) const {
  const ParameterId id = parameter_named(impl_->layout(), name);
  impl_->flush();
  std::vector<float> values(impl_->layout().num_elements(id));
  impl_->state().read(id, 0, values);
  return values;
}

void Trainer::visit_parameters(const VisitParameter& visit) const {
  impl_->flush();
  std::vector<float> values;
  for (const ParameterId id : impl_->layout().call_order()) {
    const ParameterInfo& info = impl_->layout().parameter(id);
    values.resize(impl_->layout().num_elements(id));
    impl_->state().read(id, 0, values);
    visit(info.name, info.shape, values);
  }
}

void Trainer::write_parameter(std::string_view name, std::span<const float> values) {
  const ParameterId id = parameter_named(impl_->layout(), name);
  EBB_CHECK(values.size() == impl_->layout().num_elements(id),
            "the parameter has another number of elements");
  write_parameter(id, 0, values);
}

void Trainer::read_parameter(ParameterId id, uint64_t first, std::span<float> values) const {
  impl_->flush();
  impl_->state().read(id, first, values);
}

void Trainer::write_parameter(ParameterId id, uint64_t first, std::span<const float> values) {
  impl_->flush();
  impl_->wait_for_readers();
  impl_->state().write(id, first, values);
}

const Layout& Trainer::layout() const { return impl_->layout(); }
StateReader Trainer::lock_state() { return impl_->lock_state(); }
void Trainer::restore(const OptimizerCounters& counters, const ReadPlane& read) {
  impl_->restore(counters, read);
}

}  // namespace ebb
