#include "tools/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "device/errors.h"
#include "io/json_text.h"
#include "scheduler/run/trainer.h"
#include "system/memory_limits.h"
#include "tools/kept_file.h"

namespace ebb {
namespace {

constexpr size_t kFewestRounds = 5;
constexpr double kMost_s = 1.5;    // predicted, of the fewest rounds
constexpr double kSample_s = 0.6;  // more rounds where steps are short
constexpr size_t kMostBytes = size_t{2} << 30;
constexpr size_t kMostChunkBytes = size_t{8} << 20;
constexpr size_t kPartOfBlocks = 4;  // of those between the fewest and all
constexpr double kMostRatio = 4;     // what is further off was disturbed

/// Tokens from all over the vocabulary.
class TrialBatches {
 public:
  TrialBatches(const TrialShape& shape, const Model& model) {
    const auto count = static_cast<size_t>(shape.batch_size * shape.length);
    const auto vocabulary = static_cast<size_t>(sizes_of(shape.config).vocabulary);
    tokens_.resize(count);
    positions_.resize(count);
    zeros_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      tokens_[i] = static_cast<int32_t>(i * 7919 % vocabulary);
      positions_[i] = static_cast<int32_t>(i % static_cast<size_t>(shape.length));
    }
    MicroBatch batch{{}, count};
    for (const InputSpec& input : model.inputs()) {
      const bool is_token = input.name == "tokens" || input.name == "targets";
      std::vector<int32_t>& values =
          is_token ? tokens_ : (input.name == "positions" ? positions_ : zeros_);
      batch.inputs.push_back(
          {reinterpret_cast<std::byte*>(values.data()), DType::I32, input.shape});
    }
    batches_.assign(shape.accumulation, batch);
  }
  TrialBatches(const TrialBatches&) = delete;
  std::span<const MicroBatch> batches() const { return batches_; }

 private:
  std::vector<int32_t> tokens_, positions_, zeros_;
  std::vector<MicroBatch> batches_;
};

/// A model of the shape, but with so many layers.
class Trial {
 public:
  Trial(const TrialShape& shape, int64_t num_layers, const DeviceOptions& options)
      : shape_(shape), device_options_(options), model_(make_model(shape, num_layers)) {
    device_options_.load_bytes_per_s = device_options_.store_bytes_per_s = 0;
    device_options_.pinned_bytes = SIZE_MAX;
    const TrainerOptions trainer{.dtype = shape.weight_type,
                                 .gradient_dtype = shape.gradient_type,
                                 .chunk_bytes = std::min(shape.chunk_bytes, kMostChunkBytes),
                                 .recompute = Recompute::None,
                                 .activations = ActivationPlacement::Device,
                                 .micro_batch_order = MicroBatchOrder::Horizontal,
                                 .gradient_accumulation = shape.accumulation,
                                 .update = UpdateOrder::Wait,
                                 .resident_chunks = 0,
                                 .device_updates = 0};
    Budgets budgets = {
        .num_threads = options.num_threads, .device = options.kind, .attention = options.attention};
    prepared_ = prepare(*model_, trainer, budgets);
    if (!shape.all_resident) {
      const size_t least = prepared_.smallest_device_bytes;
      budgets.device_memory = least + (prepared_.full_device_bytes - least) / kPartOfBlocks;
      prepared_ = prepare(*model_, trainer, budgets);
    }
    device_options_.memory_bytes = prepared_.ledger.total(Tier::Device);
  }

  double predicted_s(const Machine& machine) const {
    return simulate(prepared_.plan, prepared_.trace, *prepared_.layout, machine).seconds;
  }
  size_t bytes() const {
    return prepared_.ledger.total(Tier::Device) + prepared_.ledger.total(Tier::Host);
  }
  /// Nothing where memory does not suffice: a run may do with less than a trial.
  std::optional<double> measured_s() const {
    try {
      return run();
    } catch (const OutOfMemory&) {
      return std::nullopt;
    }
  }

 private:
  double run() const {
    const auto device = create_device(device_options_);
    Trainer trainer(*model_, *device, prepared_);
    const TrialBatches data(shape_, *model_);
    std::vector<double> seconds;
    trainer.step(data.batches(), 1e-5);  // it warms up
    for (double sum_s = 0; seconds.size() < kFewestRounds || sum_s < kSample_s;) {
      seconds.push_back(trainer.step(data.batches(), 1e-5).step_s);
      sum_s += seconds.back();
    }
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 4];
  }

  static std::unique_ptr<const Model> make_model(const TrialShape& shape, int64_t num_layers) {
    return create_model(with_layers(shape.config, num_layers),
                        {.batch_size = shape.batch_size, .length = shape.length},
                        shape.weight_type);
  }

  const TrialShape& shape_;
  DeviceOptions device_options_;
  const std::unique_ptr<const Model> model_;
  Preparation prepared_;
};

std::string key_text(const TrialShape& shape, const DeviceOptions& options) {
  const ModelSizes c = sizes_of(shape.config);
  return fmt::format(
      "{}; {} of {} parameters, {} layers, {} channels, {} heads, {} classes; {} x {} x {} tokens; "
      "{}",
      rates_key(options, shape.weight_type, shape.gradient_type).text(),
      architecture_of(shape.config), num_parameters(shape.config), c.num_layers, c.channels,
      c.num_heads, c.vocabulary, shape.accumulation, shape.batch_size, shape.length,
      shape.all_resident ? "resident" : fmt::format("chunks of {} bytes", shape.chunk_bytes));
}

bool is_ratio(double x) { return std::isfinite(x) && x >= 1 / kMostRatio && x <= kMostRatio; }

Machine slower(Machine machine, double ratio) {
  for (double Machine::*rate :
       {&Machine::flops_per_s, &Machine::attention_flops_per_s, &Machine::vector_flops_per_s,
        &Machine::device_bytes_per_s, &Machine::update_bytes_per_s, &Machine::copy_bytes_per_s}) {
    machine.*rate /= ratio;
  }
  machine.kernel_s *= ratio;
  return machine;
}

struct Kept {
  std::optional<double> ratio;  ///< none: it is not to be tried
};

std::optional<Kept> parse_kept(const std::string& text, const std::string& key) {
  const auto json = parse_json_or_discard(text);
  if (!json.is_object() || !json.contains("of") || json["of"] != key) return std::nullopt;
  const auto ratio = json.find("ratio");
  if (ratio == json.end()) return std::nullopt;
  if (ratio->is_null()) return Kept{};
  if (!ratio->is_number() || !is_ratio(ratio->get<double>())) return std::nullopt;
  return Kept{ratio->get<double>()};
}

}  // namespace

Machine machine_of_trial(Machine machine, DeviceKind kind) {
  if (kind == DeviceKind::Host) machine.load_bytes_per_s = machine.store_bytes_per_s = 0;
  return machine;
}

std::optional<double> try_model(const TrialShape& requested, const DeviceOptions& options,
                                const Machine& requested_machine) {
  const Machine machine = machine_of_trial(requested_machine, options.kind);
  TrialShape shape = requested;
  shape.accumulation = std::min(shape.accumulation, 2u);  // more add to a sum as the second does
  const size_t most_bytes = std::min(kMostBytes, read_memory_limits().usable_bytes() / 2);
  for (int64_t layers = sizes_of(shape.config).num_layers; layers > 0; layers /= 2) {
    const Trial trial(shape, layers, options);
    const double predicted_s = trial.predicted_s(machine);
    if (kFewestRounds * predicted_s > kMost_s || trial.bytes() > most_bytes) continue;
    const auto measured_s = trial.measured_s();
    if (!measured_s) continue;
    const double ratio = *measured_s / predicted_s;
    return is_ratio(ratio) ? std::optional(ratio) : std::nullopt;
  }
  return std::nullopt;
}

void fit_to_model(MachineRates& rates, const TrialShape& shape, const DeviceOptions& options,
                  const std::filesystem::path& folder) {
  if (options.emulate_compute) return;
  const std::string key = key_text(shape, options);
  const auto file = folder.empty() ? folder : kept_file(folder, "trial", key);
  auto kept = folder.empty() ? std::nullopt : parse_kept(read_kept(file), key);
  if (!kept) {
    const auto start = std::chrono::steady_clock::now();
    kept = Kept{try_model(shape, options, rates.machine)};
    rates.measured_s +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    nlohmann::ordered_json json;
    json["of"] = key;
    json["ratio"] = kept->ratio ? nlohmann::json(*kept->ratio) : nlohmann::json();
    if (!folder.empty()) write_kept(file, json_text(json, 2) + "\n");
  }
  rates.trial_ratio = kept->ratio;
  if (kept->ratio) rates.machine = slower(rates.machine, *kept->ratio);
}

}  // namespace ebb
