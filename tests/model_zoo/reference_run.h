// Recorded training runs of PyTorch and transformers (tests/fixtures/make_*.py), the same runs with
// the trainer of Ebb, and the deviations. Functions may be called from one thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model_zoo/architecture.h"
#include "scheduler/run/learning_rate.h"
#include "scheduler/run/trainer.h"

namespace ebb::test {

struct ReferenceMicroBatch {
  std::vector<int32_t> tokens = {}, positions = {}, targets = {};  // each (B, T)
  std::vector<int32_t> token_types = {}, document_starts = {};     // also (B, T), or empty
  uint64_t num_targets = 0;
};

/// A parameter after the last step: each stride-th element, and the sum of all elements.
struct ReferenceParameter {
  std::string name;
  double max = 0;  ///< largest magnitude
  double sum = 0;
  size_t stride = 1;
  std::vector<double> values;
};

/// The logits of the first micro-batch before training: each stride-th element. 0 for padding.
struct ReferenceLogits {
  double max = 0;
  size_t stride = 1;
  std::vector<double> values;
};

struct ReferenceRun {
  ModelConfig config;
  int64_t batch = 0, length = 0;
  bool packed = false;
  uint64_t seed = 0;
  TrainerOptions options;  ///< micro-batches, clipping, Adam
  LearningRate learning_rate;
  std::vector<double> learning_rates;           // of the run of PyTorch
  std::vector<double> losses, norms;            // one for each step
  std::vector<double> bf16_losses, bf16_norms;  // of PyTorch, as the next
  std::vector<double> fp16_losses, fp16_norms;
  ReferenceLogits logits;
  std::vector<ReferenceParameter> final_parameters;
  std::vector<std::vector<ReferenceMicroBatch>> steps;
};

/// Reads tests/fixtures/<name>.json, and rope parameters as make_llama.py writes them.
nlohmann::json read_fixture(std::string_view name);
Rotary read_rotary(const nlohmann::json& rotary);

/// Reads tests/fixtures/<architecture>_<name>.json.
ReferenceRun load_reference(std::string_view name, std::string_view architecture = "gpt2");

std::unique_ptr<const Model> create_model(const ReferenceRun& reference, DType dtype);

/// The initial values of the run of PyTorch: a hash of the index, exact in fp32.
std::vector<float> initial_values(const Parameter& parameter, ParameterId id, uint64_t seed);

/// The micro-batches of one step for the trainer. They are views of `step`.
std::vector<MicroBatch> micro_batches_of(const ReferenceRun& reference,
                                         const std::vector<ReferenceMicroBatch>& step);

/// Writes the initial values to all parameters.
void write_initial_values(Trainer& trainer, const Model& model, uint64_t seed);

/// The settings of a run of Ebb. Tests vary them, or insert a defect.
struct RunSettings {
  DType dtype = DType::F32;
  size_t chunk_bytes = size_t{1} << 20;
  Recompute recompute = kRecomputeNone;
  bool smallest_budget = false;
  int num_threads = 1;
  DeviceKind device = DeviceKind::Host;
  std::function<void(TrainerOptions&)> change_options = {};
  std::function<void(std::vector<MicroBatch>&)> change_step = {};
  std::function<void(Trainer&, const Model&, double learning_rate)> before_step = {};
  std::function<double(const LearningRate&, uint64_t step)> learning_rate = {};
};

struct RunResult {
  std::vector<double> losses = {}, norms = {};
  std::vector<std::vector<float>> parameters = {};  // by id, after the last step
  uint64_t state_hash = 0;
  size_t loaded_bytes = 0;  // in all steps
  uint32_t num_blocks = 0, num_weight_chunks = 0;
};

RunResult run_reference(const ReferenceRun& reference, const RunSettings& settings = {});

/// The largest relative deviations. Weights are compared with the largest weight of their
/// parameter.
struct Deviation {
  double loss = 0, norm = 0, weight = 0, weight_sum = 0;
};
Deviation deviation(const ReferenceRun& reference, const RunResult& result);

/// The root mean square, over the steps, of the relative deviation.
double rms_deviation(const std::vector<double>& values, const std::vector<double>& reference);

}  // namespace ebb::test
