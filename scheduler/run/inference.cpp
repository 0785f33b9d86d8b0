#include "scheduler/run/inference.h"

#include <algorithm>
#include <optional>

#include "autograd/arena.h"
#include "autograd/micro_batches.h"
#include "chunk/home.h"
#include "device/errors.h"
#include "device/planes.h"
#include "device/split_master.h"
#include "scheduler/run/run_buffers.h"
#include "scheduler/run/runner.h"
#include "scheduler/run/state.h"
#include "scheduler/search/inference_forward.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

/// The weight with which a trainer's device computes if this is the master.
template <class T>
T weight_of(float master) {
  if constexpr (std::is_same_v<T, BF16>) {
    return BF16::from_bits(split_master(std::bit_cast<uint32_t>(master)).weight);
  } else {
    return T(master);
  }
}

uint32_t most_ops(const PreparedInference& prepared) {
  size_t most = 0;
  for (const auto& forward : prepared.forwards) {
    most = std::max({most, forward.plan.ops.size(), forward.warm_up_plan.ops.size(),
                     forward.flush_plan.ops.size()});
  }
  return static_cast<uint32_t>(most);
}

}  // namespace

/// Memory is declared before the streams: the compute stream and those of the runner. So the
/// destructor waits for all submitted work before it frees memory.
class Inference::Impl {
 public:
  Impl(Device& device, const PreparedInference& prepared);

  double run(size_t forward, const MicroBatch& micro_batch);
  Tensor losses() const { return shown_.losses; }
  Tensor logits() const { return shown_.logits; }
  size_t loaded_bytes() const { return loaded_bytes_; }
  const Layout& layout() const { return layout_; }

  void read(ParameterId id, uint64_t first, std::span<float> values) const;
  void write(ParameterId id, uint64_t first, std::span<const float> values);

 private:
  using PreparedForward = PreparedInference::PreparedForward;
  void allocate_persistent(Device& device);
  void warm_up_for(size_t forward);
  void run_plan(const Plan& plan);
  void flush();
  void upload(size_t forward, const MicroBatch& micro_batch);
  std::byte* weight(ParameterId id, uint64_t first, size_t count) const;

  const PreparedInference& prepared_;
  const Layout& layout_;
  // Allocated before home_, which pins as much memory as the limit on pinned memory still allows.
  RunBuffers buffers_;
  Buffer results_;
  Home home_;
  DeviceSpaces spaces_;
  std::vector<Buffer> persistent_;
  std::vector<std::vector<InputSpec>> specs_;  // [forward]
  TapeResults shown_;
  size_t loaded_bytes_ = 0;
  std::optional<size_t> warm_for_;  // the forward whose resident weights are on the device
  ChunkWork no_work_;
  std::unique_ptr<Stream> compute_;
  Runner runner_;
  Arena arena_;
  MicroBatches micro_batches_;
};

namespace {

Buffer take_results(Device& device, size_t bytes) {
  return bytes == 0 ? Buffer() : device.allocate(MemoryKind::Pinned, bytes, "losses and logits");
}

}  // namespace

Inference::Impl::Impl(Device& device, const PreparedInference& prepared)
    : prepared_(prepared),
      layout_(*prepared.layout),
      buffers_(device, prepared.input_bytes, 1),
      results_(take_results(device, prepared.result_bytes)),
      home_(device, layout_, state_planes(prepared.options.dtype).first(1), {}),
      spaces_(device, layout_, prepared.num_blocks, prepared.arena_bytes),
      compute_(device.create_stream(StreamKind::Compute)),
      runner_(device, *compute_, layout_, spaces_, home_, buffers_, no_work_, most_ops(prepared)),
      arena_(spaces_.base(Space::Activations), prepared.arena_bytes),
      micro_batches_(device, *compute_, runner_.hooks(), arena_, 1) {
  check_device(prepared.device, device.info().profile);
  for (const PreparedForward& forward : prepared.forwards) {
    specs_.push_back(forward.forward.model->inputs());
  }
  device.reserve_workspace(prepared.workspace_bytes);
  allocate_persistent(device);
  if (!prepared.options.random_weights) return;
  ThreadTeam team(device.info().profile.num_threads);
  const Parameters& parameters = prepared.forwards[0].forward.model->parameters();
  for (ParameterId id = 0; id < parameters.size(); ++id) {
    initialise(
        parameters[id], prepared.options.seed, 0, layout_.num_elements(id), team,
        [this, id](uint64_t first, std::span<const float> values) { write(id, first, values); });
  }
}

/// Device memory is zero when it is allocated, so persistent inputs start as zeros.
void Inference::Impl::allocate_persistent(Device& device) {
  for (const InputSpec& spec : prepared_.persistent) {
    persistent_.push_back(device.allocate(MemoryKind::Device, padded_bytes(spec.shape, spec.dtype),
                                          "persistent inputs"));
  }
}

// ---- Weights

std::byte* Inference::Impl::weight(ParameterId id, uint64_t first, size_t count) const {
  EBB_CHECK(id < layout_.num_parameters(), "there is no such parameter");
  const uint64_t elements = layout_.num_elements(id);
  EBB_CHECK(first <= elements && count <= elements - first,
            "the parameter has another number of elements");
  return home_.weight(layout_.first_element(id) + first);
}

void Inference::Impl::read(ParameterId id, uint64_t first, std::span<float> values) const {
  with_weight_type(layout_.weight_type(), [&](auto zero) {
    const auto* from = reinterpret_cast<const decltype(zero)*>(weight(id, first, values.size()));
    std::copy_n(from, values.size(), values.begin());
  });
}

void Inference::Impl::write(ParameterId id, uint64_t first, std::span<const float> values) {
  flush();  // the weights on the device are then out of date
  with_weight_type(layout_.weight_type(), [&](auto zero) {
    using T = decltype(zero);
    auto* to = reinterpret_cast<T*>(weight(id, first, values.size()));
    std::transform(values.begin(), values.end(), to, weight_of<T>);
  });
}

// ---- Runs

void Inference::Impl::run_plan(const Plan& plan) {
  runner_.run(plan);
  loaded_bytes_ += plan.loaded_bytes;
}

/// Drops all weights from the device. The next run loads the weights that it needs.
void Inference::Impl::flush() {
  if (!warm_for_) return;  // always in the constructor, where several threads call write()
  run_plan(prepared_.forwards[*warm_for_].flush_plan);
  warm_for_.reset();
}

void Inference::Impl::warm_up_for(size_t forward) {
  if (warm_for_ == forward) return;
  flush();
  run_plan(prepared_.forwards[forward].warm_up_plan);
  warm_for_ = forward;
}

/// Checks and copies all inputs before the plan begins, so that a wrong input does no harm.
void Inference::Impl::upload(size_t forward, const MicroBatch& micro_batch) {
  buffers_.clear();
  size_t next = 0;
  for (const InputSpec& spec : specs_[forward]) {
    if (spec.persistent) {
      const auto at = std::ranges::find(prepared_.persistent, spec.name, &InputSpec::name);
      const Buffer& memory = persistent_[static_cast<size_t>(at - prepared_.persistent.begin())];
      buffers_.add_persistent({memory.data(), spec.dtype, spec.shape});
      continue;
    }
    EBB_CHECK(next < micro_batch.inputs.size(), "a micro-batch has the wrong number of inputs");
    buffers_.add_input(spec, micro_batch.inputs[next++]);
  }
  EBB_CHECK(next == micro_batch.inputs.size(), "a micro-batch has the wrong number of inputs");
  runner_.upload();
}

double Inference::Impl::run(size_t index, const MicroBatch& micro_batch) {
  EBB_CHECK(index < prepared_.forwards.size(), "there is no such forward");
  const PreparedForward& forward = prepared_.forwards[index];
  loaded_bytes_ = forward.plan.loaded_bytes;
  warm_up_for(index);
  upload(index, micro_batch);
  const TapeResults results = results_of(forward.forward, layout_.weight_type(), results_.data());
  runner_.run(forward.trace, forward.plan, [&] {
    run_forward(micro_batches_, forward.forward, buffers_.inputs(), results,
                buffers_.device_losses());
    if (forward.forward.loss) runner_.download_losses();
  });
  shown_ = results;
  return forward.forward.loss ? buffers_.losses()[0] : 0;
}

Inference::Inference(Device& device, const PreparedInference& prepared)
    : impl_(std::make_unique<Impl>(device, prepared)) {}
Inference::~Inference() = default;

double Inference::run(size_t forward, const MicroBatch& micro_batch) {
  return impl_->run(forward, micro_batch);
}
Tensor Inference::losses() const { return impl_->losses(); }
Tensor Inference::logits() const { return impl_->logits(); }
size_t Inference::loaded_bytes() const { return impl_->loaded_bytes(); }
const Layout& Inference::layout() const { return impl_->layout(); }

void Inference::read_logits(int64_t first_row, std::span<float> values) const {
  const Tensor logits = impl_->logits();
  EBB_CHECK(logits, "the last run computed no logits");
  const auto count = static_cast<int64_t>(values.size());
  const Tensor rows = logits.slice_rows(first_row, count / logits.dim(1));
  EBB_CHECK(rows.num_elements() == count, "logits are read in whole rows");
  with_weight_type(rows.dtype, [&](auto zero) {
    const auto from = rows.span<decltype(zero)>();
    std::copy(from.begin(), from.end(), values.begin());
  });
}

void Inference::read_parameter(ParameterId id, uint64_t first, std::span<float> values) const {
  impl_->read(id, first, values);
}
void Inference::write_parameter(ParameterId id, uint64_t first, std::span<const float> values) {
  impl_->write(id, first, values);
}

std::vector<float> Inference::read_parameter(std::string_view name) const {
  const ParameterId id = parameter_named(impl_->layout(), name);
  std::vector<float> values(impl_->layout().num_elements(id));
  impl_->read(id, 0, values);
  return values;
}

void Inference::write_parameter(std::string_view name, std::span<const float> values) {
  const ParameterId id = parameter_named(impl_->layout(), name);
  EBB_CHECK(values.size() == impl_->layout().num_elements(id),
            "the parameter has another number of elements");
  impl_->write(id, 0, values);
}

}  // namespace ebb
