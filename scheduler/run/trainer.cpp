#include "scheduler/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>

#include "autograd/arena.h"
#include "autograd/micro_batches.h"
#include "device/kernels.h"
#include "device/planes.h"
#include "scheduler/run/device_state.h"
#include "scheduler/run/optimizer.h"
#include "scheduler/run/run_buffers.h"
#include "scheduler/run/runner.h"
#include "scheduler/run/state.h"
#include "scheduler/run/step_agreement.h"
#include "scheduler/search/memory_sizes.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

uint64_t count_targets(std::span<const MicroBatch> micro_batches) {
  uint64_t count = 0;
  for (const MicroBatch& batch : micro_batches) count += batch.num_targets;
  return count;
}

/// Through which gradients come that a GPU adds from the sums of groups.
Buffer allocate_pinned_sums(Device& device, const Preparation& prepared) {
  const size_t bytes = adder_pinned_bytes(prepared);
  return bytes > 0 ? device.allocate(MemoryKind::Pinned, bytes, kSumsOfGroups) : Buffer();
}

/// The home of this rank. With several ranks it is in memory that all of them can address; then
/// `shared` gets what this rank's device copies of the homes of all ranks.
Home make_home(Device& device, const Preparation& prepared, Ranks* ranks,
               std::vector<Buffer>& shared) {
  const std::span<const PlaneInfo> planes = state_planes(prepared.options.dtype);
  const HomeOptions options = home_options(prepared.plan);
  if (ranks == nullptr) return Home(device, *prepared.layout, planes, options);
  const std::vector<std::byte*> memory =
      ranks->share(home_bytes(*prepared.layout, planes, options));
  Home home(memory[ranks->rank()], *prepared.layout, planes, options);
  const std::vector<HomeParts> parts = all_of_ranks(*ranks, home.parts());
  for (uint32_t rank = 0; rank < ranks->size(); ++rank) {
    const bool is_mine = rank == ranks->rank();
    if (!is_mine) home.connect(rank, memory[rank], parts[rank]);
    if (memory[rank] == nullptr) continue;
    const size_t bytes =
        is_mine ? copied_bytes(*prepared.layout, planes, options) : parts[rank].loaded_bytes;
    if (bytes > 0) shared.push_back(device.share(memory[rank], bytes));
    ranks->progress();  // pinning takes long
  }
  return home;
}

}  // namespace

RankPlace place_of(const Ranks* ranks) {
  if (ranks == nullptr) return {};
  return {ranks->rank(), ranks->size(), ranks->size() / ranks->ranks_per_machine()};
}

bool have_peer_access(Ranks& ranks, const DeviceOptions& device) {
  std::array<char, 32> mine = {};
  const bool is_gpu = device.profile.kind == DeviceKind::Cuda;
  if (is_gpu) gpu_address(device.cuda_index).copy(mine.data(), mine.size() - 1);
  const std::vector<std::array<char, 32>> addresses = all_of_ranks(ranks, mine);
  uint8_t can_read = is_gpu && ranks.ranks_per_machine() > 1;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.rank() || !ranks.is_near(rank)) continue;
    can_read = can_read && can_read_gpu(device.cuda_index, addresses[rank].data());
  }
  return std::ranges::all_of(all_of_ranks(ranks, can_read), [](uint8_t can) { return can != 0; });
}

/// Throws LogicError if the ranks do not have plans that fit together. Collective.
Ranks* check_plans(Ranks* ranks, const Preparation& prepared) {
  EBB_CHECK(place_of(ranks) == prepared.division.place,
            "the plan is for another rank, or for more or fewer ranks");
  if (ranks == nullptr) return nullptr;
  const StepAnnouncement mine{.plan = hash_of_common_plan(prepared)};
  check_same_work(all_of_ranks(*ranks, mine));
  return ranks;
}

/// Memory is declared before the streams: the compute stream and those of the runner. So the
/// destructor waits for all submitted work before it frees memory.
class Trainer::Impl {
 public:
  Impl(const Model& model, Device& device, const Preparation& prepared, Ranks* ranks);

  StepResult step(std::span<const MicroBatch> micro_batches, double learning_rate);
  double evaluate(std::span<const MicroBatch> micro_batches);
  /// Makes the deferred updates of the last step, and drops resident weights, except those of
  /// Tier::Device. To be called before any other access to the state.
  void flush();
  StateReader lock_state();
  void restore(const OptimizerCounters& counters, const ReadPlane& read);

  /// Returns when all ranks have called it.
  void meet() const;

  const OptimizerCounters& counters() const { return optimizer_.counters(); }
  /// Waits until no StateReader locks the state.
  void wait_for_readers() { optimizer_.state_lock().wait_for_all(); }
  std::span<const OpTime> last_step_times() const { return runner_.times(); }
  State& state() { return state_; }
  const Layout& layout() const { return layout_; }

 private:
  void initialise_device(Kernels& kernels);
  void run_micro_batches(IndexRange micro_batches, bool training, float loss_gradient_scale);
  ExecutorStats run_step(double learning_rate, float loss_gradient_scale);
  /// The mean over all targets of all micro-batches, of which this rank computed some.
  double mean_loss(IndexRange mine, uint32_t num_micro_batches, uint64_t num_targets);
  uint64_t of_all_ranks(const StepAnnouncement& mine);
  ExecutorStats run_plan(const Plan& plan);
  uint64_t check(std::span<const MicroBatch> micro_batches, IndexRange expected,
                 StepAnnouncement announcement);
  void upload(std::span<const MicroBatch> micro_batches);

  const Model& model_;
  const Preparation& prepared_;
  Ranks* const ranks_;  // null: there is one rank
  const bool emulates_compute_;
  const Layout& layout_;
  std::vector<InputSpec> specs_;
  // Allocated before home_, which pins as much memory as the limit on pinned memory still allows.
  RunBuffers buffers_;
  Buffer pinned_sums_;  // moved to optimizer_
  DeviceSpaces spaces_;
  DeviceState device_state_;
  std::vector<Buffer> shared_;  // with several ranks: parts of their homes
  Home home_;
  State state_;
  Optimizer optimizer_;
  std::unique_ptr<Stream> compute_;
  Runner runner_;
  Arena arena_;
  MicroBatches micro_batches_;
  std::vector<double> losses_, losses_of_ranks_;  // of the micro-batches of a step
  uint64_t common_plan_ = 0;  // with several ranks: the hash of what they have in common
  std::vector<StepAnnouncement> announcements_;  // of the ranks
  bool is_flushed_ = true;                       // no step since the last flush
  enum class Condition : uint8_t {
    Good,
    Stopped,  // a plan threw: no other plan can run, but the state in host memory is complete
    Lost      // a plan threw, and the state is incomplete
  } condition_ = Condition::Good;
};

Trainer::Impl::Impl(const Model& model, Device& device, const Preparation& prepared, Ranks* ranks)
    : model_(model),
      prepared_(prepared),
      ranks_(check_plans(ranks, prepared)),
      emulates_compute_(device.info().emulate_compute.has_value()),
      layout_(*prepared.layout),
      specs_(model.inputs()),
      buffers_(device, prepared.ledger.bytes(kInputs, Tier::Device), most_micro_batches(prepared)),
      pinned_sums_(allocate_pinned_sums(device, prepared)),
      spaces_(device, layout_, prepared.num_blocks,
              std::max(prepared.trace.arena_bytes, prepared.evaluation_trace.arena_bytes)),
      device_state_(device, layout_, prepared.plan.chunks, spaces_.base(Space::Weights), ranks),
      home_(make_home(device, prepared, ranks, shared_)),
      state_(layout_, home_, device_state_, ranks),
      optimizer_(device, layout_, spaces_, home_, state_, device_state_,
                 trained_parameters(prepared.trace, layout_.num_parameters()), prepared.plan,
                 prepared.options, ranks, std::move(pinned_sums_)),
      compute_(device.create_stream(StreamKind::Compute)),
      runner_(device, *compute_, layout_, spaces_, home_, buffers_, optimizer_,
              static_cast<uint32_t>(
                  std::max(prepared.plan.ops.size(), prepared.evaluation_plan.ops.size())),
              ranks),
      arena_(spaces_.base(Space::Activations),
             std::max(prepared.trace.arena_bytes, prepared.evaluation_trace.arena_bytes)),
      micro_batches_(device, *compute_, runner_.hooks(), arena_,
                     micro_batches_together(prepared.schedule, most_micro_batches(prepared))) {
  const RankPlace place = place_of(ranks);
  if (ranks != nullptr) common_plan_ = hash_of_common_plan(prepared);
  announcements_.resize(place.num_ranks);
  check_device(prepared.device, device.info().profile);
  device.reserve_workspace(prepared.ledger.bytes(kWorkspace, Tier::Device));
  initialise_device(device.kernels());
  ThreadTeam team(device.info().profile.num_threads);
  if (prepared.options.random_weights) {
    state_.initialise(model.parameters(), prepared.options.seed, team);
  }
  meet();
}

void Trainer::Impl::meet() const {
  if (ranks_ != nullptr) ranks_->exchange({}, {});
}

/// Fills the blocks of chunks with device updates, and the state that this device shares, with
/// zeros. Host memory is zero when it is allocated, so both start with the same state.
void Trainer::Impl::initialise_device(Kernels& kernels) {
  if (const std::span<std::byte> owned = device_state_.owned(); !owned.empty()) {
    const auto count = static_cast<int64_t>(owned.size() / sizeof(float));
    kernels.submit(*compute_, FillZero{{owned.data(), DType::F32, {count}}});
    compute_->synchronize();
  }
  const Plan& plan = prepared_.initialise_plan;
  if (plan.ops.empty()) return;
  runner_.run(plan);
  for (const ChunkIndex c : plan.chunks_that(&ChunkRecord::ends_on_device)) {
    const auto elements = static_cast<int64_t>(layout_.chunk_elements());
    kernels.submit(
        *compute_,
        FillZero{{spaces_.address({Space::Weights, c}), layout_.weight_type(), {elements}}});
  }
  compute_->synchronize();
}

/// Checks and copies all inputs before the plan begins, so that a wrong input does no harm.
void Trainer::Impl::upload(std::span<const MicroBatch> micro_batches) {
  buffers_.clear();
  for (const MicroBatch& batch : micro_batches) {
    EBB_CHECK(batch.inputs.size() == specs_.size(), "a micro-batch has the wrong number of inputs");
    for (size_t i = 0; i < specs_.size(); ++i) buffers_.add_input(specs_[i], batch.inputs[i]);
  }
  runner_.upload();
}

void Trainer::Impl::run_micro_batches(IndexRange micro_batches, bool training,
                                      float loss_gradient_scale) {
  micro_batches_.run(
      model_, {.count = micro_batches.count,
               .tape = tape_options(prepared_.options, prepared_.schedule, prepared_.layer_lists,
                                    training, optimizer_.step()),
               .first = micro_batches.first,
               .inputs = buffers_.inputs(),
               .losses = buffers_.device_losses(),
               .loss_gradient_scale = loss_gradient_scale});
  runner_.download_losses();
}

/// Checks the numbers of micro-batches and of targets, and that all ranks do the same. Returns the
/// number of targets of all ranks.
uint64_t Trainer::Impl::check(std::span<const MicroBatch> micro_batches, IndexRange expected,
                              StepAnnouncement announcement) {
  EBB_CHECK(
      micro_batches.size() == expected.count && (!micro_batches.empty() || ranks_ != nullptr),
      fmt::format(
          "{} micro-batches were given, but the plan is for {}: see gradient_accumulation and "
          "evaluation_batches",
          micro_batches.size(), expected.count));
  announcement.num_targets = count_targets(micro_batches);
  announcement.step = optimizer_.step();
  announcement.plan = common_plan_;
  const uint64_t num_targets = of_all_ranks(announcement);
  if (num_targets == 0)
    throw NumericError("the micro-batches have no targets, so there is no mean loss");
  return num_targets;
}

uint64_t Trainer::Impl::of_all_ranks(const StepAnnouncement& mine) {
  if (ranks_ == nullptr) return mine.num_targets;
  exchange(*ranks_, std::span<const StepAnnouncement>(&mine, 1), std::span(announcements_));
  check_same_work(announcements_);
  uint64_t num_targets = 0;
  for (const StepAnnouncement& rank : announcements_) num_targets += rank.num_targets;
  return num_targets;
}

StepResult Trainer::Impl::step(std::span<const MicroBatch> micro_batches, double learning_rate) {
  EBB_CHECK(condition_ == Condition::Good,
            "an earlier step or evaluation threw: no step can follow");
  StepResult result;
  result.num_targets = check(micro_batches, prepared_.share.micro_batches,
                             {.evaluates = 0, .learning_rate = learning_rate});
  const Plan& plan = prepared_.plan;
  is_flushed_ = false;
  if (runner_.num_chunks_on_device() < plan.count(&ChunkRecord::begins_on_device)) {
    result.step_s = run_plan(prepared_.warm_up_plan).total_s;
    result.loaded_bytes = prepared_.warm_up_plan.loaded_bytes;
  }
  upload(micro_batches);
  result.loss_scale = optimizer_.loss_scale();
  const ExecutorStats stats =
      run_step(learning_rate,
               static_cast<float>(result.loss_scale / static_cast<double>(result.num_targets)));
  result.loss = mean_loss(prepared_.share.micro_batches, prepared_.options.gradient_accumulation,
                          result.num_targets);
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
        "weights are those before these steps; try a lower `learning_rate` or `dtype` fp32",
        optimizer_.counters().num_skipped_in_a_row, optimizer_.first_bad_tensor()));
  }
  return result;
}

double Trainer::Impl::mean_loss(IndexRange mine, uint32_t num_micro_batches, uint64_t num_targets) {
  losses_.assign(num_micro_batches, 0);
  std::ranges::copy(buffers_.losses().first(mine.count), losses_.begin() + mine.first);
  if (ranks_ != nullptr) {
    losses_of_ranks_.resize(num_micro_batches * ranks_->size());
    exchange(*ranks_, std::span<const double>(losses_), std::span(losses_of_ranks_));
    // Only the rank that computed a micro-batch gives another number than 0.
    std::ranges::fill(losses_, 0);
    for (size_t i = 0; i < losses_of_ranks_.size(); ++i) {
      losses_[i % num_micro_batches] += losses_of_ranks_[i];
    }
  }
  const double total = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  return emulates_compute_ ? kNotANumber : total / static_cast<double>(num_targets);
}

ExecutorStats Trainer::Impl::run_step(double learning_rate, float loss_gradient_scale) {
  // An update that waits for the state lock waits until the reader has copied state from the
  // device. Such a copy may be queued behind the compute stream's wait for the update and then
  // never run. So this thread waits for host work itself (Device::block_submitting_thread).
  const bool reader_copies_from_device =
      !device_state_.is_empty() && optimizer_.state_lock().is_locked();
  optimizer_.begin_step(learning_rate);
  try {
    const ExecutorStats stats = runner_.run(
        prepared_.trace, prepared_.plan,
        [&] { run_micro_batches(prepared_.share.micro_batches, true, loss_gradient_scale); },
        reader_copies_from_device);
    optimizer_.end_step();
    return stats;
  } catch (...) {
    condition_ = optimizer_.roll_back() ? Condition::Stopped : Condition::Lost;
    throw;
  }
}

ExecutorStats Trainer::Impl::run_plan(const Plan& plan) {
  try {
    return runner_.run(plan);
  } catch (...) {
    condition_ = Condition::Lost;
    throw;
  }
}

double Trainer::Impl::evaluate(std::span<const MicroBatch> micro_batches) {
  const IndexRange mine = prepared_.evaluation_batches;
  const uint64_t num_targets = check(micro_batches, mine, {.evaluates = 1});
  flush();
  upload(micro_batches);
  try {
    if (mine.count > 0) {
      runner_.run(prepared_.evaluation_trace, prepared_.evaluation_plan,
                  [&] { run_micro_batches(mine, false, 0); });
    }
  } catch (...) {
    condition_ = device_state_.is_empty() ? Condition::Stopped : Condition::Lost;
    throw;
  }
  return mean_loss(mine, prepared_.options.evaluation_batches, num_targets);
}

void Trainer::Impl::flush() {
  EBB_CHECK(condition_ != Condition::Lost,
            "an earlier step or evaluation threw: the state is lost");
  if (condition_ == Condition::Stopped || is_flushed_) return;
  const bool is_resident =
      runner_.num_chunks_on_device() > prepared_.plan.count(&ChunkRecord::is_on_device);
  if (optimizer_.has_deferred() || is_resident) {
    optimizer_.begin_flush();
    run_plan(prepared_.flush_plan);
  }
  meet();
  optimizer_.end_flush();
  is_flushed_ = true;
}

/// The reader releases parameters in the order in which updates change them. Updates that wait for
/// the norm come in the order of the next forward, delayed and other updates in the order of the
/// backward.
StateReader Trainer::Impl::lock_state() {
  flush();
  const std::span<const ParameterId> order = layout_.call_order();
  std::vector<ParameterId> parts(order.begin(), order.end());
  const TrainerOptions& options = prepared_.options;
  if (!updates_after_norm(options) || options.delayed_updates) std::ranges::reverse(parts);
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
      state_.visit_plane(id, plane, {0, layout_.num_elements(id)}, true,
                         [&](std::span<std::byte> into) {
                           read(id, plane, into);
                           if (ranks_ != nullptr) ranks_->progress();
                         });
    }
  }
  optimizer_.restore(counters);
  meet();
}

Trainer::Trainer(const Model& model, Device& device, const Preparation& prepared, Ranks* ranks)
    : impl_(std::make_unique<Impl>(model, device, prepared, ranks)) {}
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
uint64_t Trainer::state_hash() {
  impl_->flush();
  return impl_->state().hash();
}

std::vector<float> Trainer::read_parameter(std::string_view name) {
  const ParameterId id = parameter_named(impl_->layout(), name);
  impl_->flush();
  std::vector<float> values(impl_->layout().num_elements(id));
  impl_->state().read(id, 0, values);
  return values;
}

void Trainer::visit_parameters(const VisitParameter& visit) {
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

void Trainer::read_parameter(ParameterId id, uint64_t first, std::span<float> values) {
  impl_->flush();
  impl_->state().read(id, first, values);
}

void Trainer::write_parameter(ParameterId id, uint64_t first, std::span<const float> values) {
  impl_->flush();
  impl_->wait_for_readers();
  impl_->state().write(id, first, values);
  impl_->meet();
}

const Layout& Trainer::layout() const { return impl_->layout(); }
void Trainer::flush() { impl_->flush(); }
StateReader Trainer::lock_state() { return impl_->lock_state(); }
void Trainer::restore(const OptimizerCounters& counters, const ReadPlane& read) {
  impl_->restore(counters, read);
}

}  // namespace ebb
