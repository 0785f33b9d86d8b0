#include "autograd/gradient_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "autograd/micro_batches.h"
#include "device/random.h"

namespace ebb {
namespace {

constexpr double kDeviation = 0.1;      // of weights from their initial values
constexpr double kLossError = 0x1p-21;  // of a loss in fp32, relative: some roundings
constexpr size_t kNoLimit = SIZE_MAX / 2;

/// Weights and gradient sums in memory of the device. Without memory it only counts the uses.
class PlainHooks : public Hooks {
 public:
  explicit PlainHooks(const Parameters& parameters) : parameters_(parameters) {
    num_uses_.resize(parameters.size());
  }

  void begin_call(std::string_view, Phase, std::span<const ParameterUse> uses) override {
    for (const ParameterUse& use : uses) {
      uint32_t& count = num_uses_[use.parameter];
      count = std::max(count, use.use + 1);
    }
  }
  Tensor weight(const ParameterUse& use) override { return use.rows.of(weight_of(use.parameter)); }
  GradientTarget gradient(const ParameterUse& use) override {
    return {use.rows.of(sum_of(use.parameter, use.use)), Write::Store};
  }
  void end_call() override {}

  uint32_t num_uses(ParameterId id) const { return num_uses_[id]; }
  Tensor weight_of(ParameterId id) const {
    return {weights_.empty() ? nowhere() : weights_[id].data(), DType::F32, parameters_[id].shape};
  }
  Tensor sum_of(ParameterId id, uint32_t use) const {
    std::byte* const data = sums_.empty() ? nowhere() : sums_[id][use].data();
    return {data, DType::F32, parameters_[id].shape};
  }
  /// Allocates the weights, and the sums of the uses that were counted.
  void allocate(Device& device) {
    for (ParameterId id = 0; id < parameters_.size(); ++id) {
      const auto take = [&] {
        const auto n = static_cast<size_t>(parameters_[id].shape.num_elements());
        return device.allocate(MemoryKind::Device, n * sizeof(float), "a gradient check");
      };
      weights_.push_back(take());
      sums_.emplace_back();
      for (uint32_t use = 0; use < num_uses_[id]; ++use) sums_.back().push_back(take());
    }
  }
  /// An address that is never accessed.
  static std::byte* nowhere() { return reinterpret_cast<std::byte*>(uintptr_t{1} << 44); }

 private:
  const Parameters& parameters_;
  std::vector<uint32_t> num_uses_;
  std::vector<Buffer> weights_;
  std::vector<std::vector<Buffer>> sums_;
};

/// Runs nothing. Keeps the largest workspace that a kernel needs.
class CountingStream final : public Stream {
 public:
  void record(Event&) override {}
  void wait(const Event&) override {}
  void copy(void*, const void*, size_t, CopyKind) override {}
  void submit(const Cost& cost, HostFunction) override {
    workspace_bytes = std::max(workspace_bytes, cost.workspace_bytes);
  }
  void synchronize() override {}
  StreamStats stats() const override { return {}; }

  size_t workspace_bytes = 0;
};

/// The model on a device, with its weights and inputs.
class Run {
 public:
  Run(const Model& model, std::span<const Tensor> inputs, const DeviceOptions& options)
      : model_(model),
        device_(create_device(options)),
        compute_(device_->create_stream(StreamKind::Compute)),
        load_(device_->create_stream(StreamKind::Load)),
        store_(device_->create_stream(StreamKind::Store)),
        hooks_(model.parameters()) {
    size_t largest = sizeof(double);
    for (const Tensor& input : inputs) largest = std::max(largest, input.bytes());
    for (const Parameter& parameter : model.parameters()) {
      largest =
          std::max(largest, static_cast<size_t>(parameter.shape.num_elements()) * sizeof(float));
    }
    host_ = device_->allocate(MemoryKind::Pinned, largest, "a gradient check");
    total_ = device_->allocate(MemoryKind::Device, sizeof(double), "a gradient check");
    const size_t arena_bytes = measure();
    hooks_.allocate(*device_);
    activations_ = device_->allocate(MemoryKind::Device, arena_bytes, "activations");
    arena_.emplace(activations_.data(), arena_bytes);
    micro_batches_.emplace(*device_, *compute_, hooks_, *arena_, 1);
    for (const Tensor& input : inputs) {
      inputs_.push_back(device_->allocate(MemoryKind::Device, input.bytes(), "an input"));
      tensors_.push_back({inputs_.back().data(), input.dtype, input.shape});
      write(tensors_.back(), input.data);
    }
  }

  /// The sum of all losses. With `training` also computes the gradients.
  double run(bool training) {
    micro_batches_->run(model_, options(training, tensors_));
    compute_->synchronize();
    double loss = 0;
    read({total_.data(), DType::F64, {1}}, reinterpret_cast<std::byte*>(&loss));
    return loss;
  }

  /// Replaces elements [first, first + values.size()) of a weight.
  void write_weight(ParameterId id, int64_t first, std::span<const float> values) {
    Tensor part = hooks_.weight_of(id);
    part.data += static_cast<size_t>(first) * sizeof(float);
    part.shape = {static_cast<int64_t>(values.size())};
    write(part, reinterpret_cast<const std::byte*>(values.data()));
  }

  /// The gradient of a parameter: the sum over its uses.
  std::vector<double> gradient(ParameterId id) {
    const auto n = static_cast<size_t>(model_.parameters()[id].shape.num_elements());
    std::vector<double> all(n);
    std::vector<float> part(n);
    for (uint32_t use = 0; use < hooks_.num_uses(id); ++use) {
      read(hooks_.sum_of(id, use), reinterpret_cast<std::byte*>(part.data()));
      for (size_t i = 0; i < n; ++i) all[i] += static_cast<double>(part[i]);
    }
    return all;
  }

 private:
  MicroBatchesOptions options(bool training, std::span<const Tensor> inputs) const {
    return {.tape = {.training = training},
            .inputs = inputs,
            .losses = {total_.data(), DType::F64, {1}}};
  }

  /// Runs on a stream that only counts: for the workspace, the uses, and the size of the arena.
  size_t measure() {
    std::vector<Tensor> inputs;
    for (const InputSpec& spec : model_.inputs()) {
      inputs.push_back({PlainHooks::nowhere(), spec.dtype, spec.shape});
    }
    CountingStream stream;
    Arena arena(PlainHooks::nowhere(), kNoLimit);
    MicroBatches micro_batches(*device_, stream, hooks_, arena, 1);
    for (const bool training : {true, false}) {
      micro_batches.run(model_, options(training, inputs));
    }
    device_->reserve_workspace(stream.workspace_bytes);
    return std::max<size_t>(arena.peak_bytes(), 1);
  }

  void write(const Tensor& to, const std::byte* from) {
    std::memcpy(host_.data(), from, to.bytes());
    load_->copy(to.data, host_.data(), to.bytes(), CopyKind::Load);
    load_->synchronize();
  }
  void read(const Tensor& from, std::byte* to) {
    store_->copy(host_.data(), from.data, from.bytes(), CopyKind::Store);
    store_->synchronize();
    std::memcpy(to, host_.data(), from.bytes());
  }

  const Model& model_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Stream> compute_, load_, store_;
  PlainHooks hooks_;
  Buffer host_, total_, activations_;
  std::optional<Arena> arena_;
  std::optional<MicroBatches> micro_batches_;
  std::vector<Buffer> inputs_;
  std::vector<Tensor> tensors_;
};

std::vector<float> weights_of(const Parameter& parameter, ParameterId id, uint64_t seed) {
  const uint64_t key = random_key(seed, RandomUse::Weights);
  std::vector<float> values(static_cast<size_t>(parameter.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto words = philox4x32(i, id, key);
    const float normal = normal_pair(words[0], words[1]).first;
    values[i] = parameter.init.constant + parameter.init.standard_deviation * normal +
                static_cast<float>(kDeviation * (2 * uniform(words[2]) - 1));
  }
  return values;
}

/// Up to `most` of n elements, one in each of as many parts of the same size.
std::vector<int64_t> chosen_elements(int64_t n, int64_t most, ParameterId id, uint64_t seed) {
  const int64_t count = std::min(n, most);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = n * i / count, end = n * (i + 1) / count;
    const uint32_t word = philox4x32(static_cast<uint64_t>(i), id, ~seed)[0];
    chosen.push_back(begin + word % (end - begin));
  }
  return chosen;
}

/// "name[7, 120]"
std::string element_name(const Parameter& parameter, int64_t element) {
  std::string index;
  for (int i = parameter.shape.rank() - 1; i >= 0; --i) {
    index = fmt::format("{}{}{}", element % parameter.shape[i], index.empty() ? "" : ", ", index);
    element /= parameter.shape[i];
  }
  return fmt::format("{}[{}]", parameter.name, index);
}

void check_inputs(const Model& model, std::span<const Tensor> inputs) {
  const std::vector<InputSpec> specs = model.inputs();
  if (inputs.size() != specs.size()) {
    throw ConfigError(fmt::format("a gradient check needs the {} inputs of the model, not {}",
                                  specs.size(), inputs.size()));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const InputSpec& spec = specs[i];
    if (inputs[i] && inputs[i].dtype == spec.dtype && inputs[i].shape == spec.shape) continue;
    throw ConfigError(fmt::format("input '{}' is {} {}, not {}", spec.name, to_string(spec.shape),
                                  name_of(spec.dtype), to_string(inputs[i])));
  }
}

void check_options(const GradientCheckOptions& options) {
  if (options.tolerance > 0 && options.step > 0 && options.elements_per_parameter > 0) return;
  throw ConfigError(fmt::format(
      "a gradient check needs a tolerance, a step and a number of elements above 0, not {}, {} and "
      "{}",
      options.tolerance, options.step, options.elements_per_parameter));
}

class Checker {
 public:
  Checker(const Model& model, std::span<const Tensor> inputs, const GradientCheckOptions& options)
      : parameters_(model.parameters()), options_(options), run_(model, inputs, options.device) {
    for (ParameterId id = 0; id < parameters_.size(); ++id) {
      weights_.push_back(weights_of(parameters_[id], id, options.seed));
      run_.write_weight(id, 0, weights_.back());
    }
  }

  GradientCheck check() {
    GradientCheck result{.tolerance = options_.tolerance};
    loss_ = run_.run(true);
    if (!std::isfinite(loss_)) {
      throw ConfigError(fmt::format(
          "the loss of the model is {}; a gradient check needs inputs with a finite loss", loss_));
    }
    for (ParameterId id = 0; id < parameters_.size(); ++id) gradients_.push_back(run_.gradient(id));
    for (ParameterId id = 0; id < parameters_.size(); ++id) check_parameter(result, id);
    return result;
  }

 private:
  void check_parameter(GradientCheck& result, ParameterId id) {
    bool is_measurable = false;
    const int64_t n = parameters_[id].shape.num_elements();
    for (const int64_t i : chosen_elements(n, options_.elements_per_parameter, id, options_.seed)) {
      const GradientElement element = compare(id, i);
      const double error = excess(element);
      ++result.num_elements;
      result.num_wrong += error > 1;
      is_measurable |= std::abs(element.differences) > element.allowed;
      if (result.worst.name.empty() || error > excess(result.worst)) result.worst = element;
    }
    if (!is_measurable) result.too_small.push_back(parameters_[id].name);
  }

  /// The error as a multiple of the allowed error.
  static double excess(const GradientElement& element) {
    const double error = std::abs(element.gradient - element.differences) / element.allowed;
    return std::isnan(error) ? INFINITY : error;
  }

  /// How the loss changes if an element moves by +-`step`.
  struct Differences {
    double slope;      // (loss above - loss below) / distance
    double curvature;  // loss above + loss below - 2 loss
  };

  GradientElement compare(ParameterId id, int64_t i) {
    const double step = options_.step;
    const Differences wide = move(id, i, step), narrow = move(id, i, step / 2);
    run_.write_weight(id, i, {&weights_[id][static_cast<size_t>(i)], 1});
    const double expected = (4 * narrow.slope - wide.slope) / 3;
    // A kink at the weight itself changes both slopes alike, and the curvature by step times the
    // jump of the slope, where a smooth loss has step^2 times its second derivative.
    const double jump = (4 * narrow.curvature - wide.curvature) / step;
    return {.name = element_name(parameters_[id], i),
            .gradient = gradients_[id][static_cast<size_t>(i)],
            .differences = expected,
            .allowed = options_.tolerance * std::abs(expected) +
                       std::abs(narrow.slope - wide.slope) + std::abs(jump) +
                       kLossError * std::abs(loss_) / step};
  }

  /// The fp32 weights decide how far the element really moves.
  Differences move(ParameterId id, int64_t i, double step) {
    const auto weight = static_cast<double>(weights_[id][static_cast<size_t>(i)]);
    const auto above = static_cast<float>(weight + step), below = static_cast<float>(weight - step);
    run_.write_weight(id, i, {&above, 1});
    const double loss_above = run_.run(false);
    run_.write_weight(id, i, {&below, 1});
    const double loss_below = run_.run(false);
    const double distance = static_cast<double>(above) - static_cast<double>(below);
    return {(loss_above - loss_below) / distance, loss_above + loss_below - 2 * loss_};
  }

  const Parameters& parameters_;
  const GradientCheckOptions& options_;
  Run run_;
  double loss_ = 0;
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<double>> gradients_;
};

}  // namespace

std::string GradientCheck::message() const {
  std::string text = fmt::format(
      "{} of {} compared gradients are wrong (tolerance {:g}); the worst is {}: the backward "
      "computes {:.6g}, differences of the loss give {:.6g}, allowed error {:.2g}",
      num_wrong, num_elements, tolerance, worst.name, worst.gradient, worst.differences,
      worst.allowed);
  if (!too_small.empty()) {
    text +=
        fmt::format("; not measurable, because they are too small: {}", fmt::join(too_small, ", "));
  }
  return text;
}

GradientCheck check_gradients(const Model& model, std::span<const Tensor> inputs,
                              const GradientCheckOptions& options) {
  check_options(options);
  check_inputs(model, inputs);
  return Checker(model, inputs, options).check();
}

}  // namespace ebb
