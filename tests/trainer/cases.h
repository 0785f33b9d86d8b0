// What the trainer's tests run: small models, their data, and one short training run as plain
// values.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "model_zoo/gpt2.h"
#include "scheduler/run/trainer.h"

namespace ebb::test {

inline constexpr int64_t kMicroBatchSize = 2;

/// 0.8 M parameters: 26 chunks of gradient sums at the smallest chunk size.
Gpt2Config small_gpt();
/// 50 k parameters, for the fault drills.
Gpt2Config tiny_gpt();
/// 0.2 M parameters: three chunks of the smallest size, so that an emulated GPU trains it quickly.
Gpt2Config emulated_gpt();

/// Inputs of one step or evaluation, drawn from the seed; every 7th target is ignored.
class Data {
 public:
  Data(const Gpt2Config& config, int64_t length, uint32_t num_micro_batches, uint64_t seed);
  Data(const Data&) = delete;
  const std::vector<MicroBatch>& micro_batches() const { return micro_batches_; }

 private:
  std::vector<std::vector<int32_t>> values_;
  std::vector<MicroBatch> micro_batches_;
};

/// What the device keeps from step to step.
enum class Between : uint8_t {
  Nothing,
  Weights,  ///< resident weights, of as many chunks as fit
  State,    ///< the whole state of as many chunks as fit, at least two: the device updates them
};
enum class Memory : uint8_t { Resident, Between, Smallest };

/// One training run: a point of the matrix of schedules (matrix.h), and settings beyond it.
struct TrainingCase {
  DType dtype = DType::BF16;
  bool clip = true;
  uint32_t accumulation = 1;
  Memory memory = Memory::Resident;
  size_t num_pieces = 1;  ///< per chunk; the smallest chunk is one piece
  Recompute recompute = kRecomputeNone;
  int num_threads = 1;
  UpdateOrder update = UpdateOrder::Overlap;
  MicroBatchOrder order = MicroBatchOrder::Horizontal;
  ActivationPlacement activations = ActivationPlacement::Device;
  Between between = Between::Nothing;

  // Not part of the matrix.
  size_t pinned_bytes = SIZE_MAX;
  DeviceKind device = DeviceKind::Host;
  uint32_t evaluation_batches = 0;
  float dropout = 0;
  double link_bytes_per_s = 0;
  bool speculates_late = true;  ///< true: the speculative updates do not depend on timing
  uint32_t num_steps = 3;
  uint32_t num_ranks = 1;       ///< threads of this process, each with a device
  uint32_t num_machines = 1;    ///< on which the ranks are, as far as they can tell
  bool copies_weights = false;  ///< only with several machines
  bool chains_sums = false;     ///< only with several machines
  bool sums_on_devices = false;
  bool splits_loads = false;     ///< only with several ranks on a machine, and equal work
  bool delayed_updates = false;  ///< only with UpdateOrder::Overlap and Between::Nothing
  std::optional<uint32_t> groups = {};
  DType group_dtype = DType::F32;
  std::optional<float> max_norm = {};  ///< for clipping; default kBitingNorm
  Gpt2Config model = small_gpt();
  int64_t length = 32;  ///< tokens per sequence

  TrainerOptions options() const;
};
std::string to_string(const TrainingCase& run);
std::ostream& operator<<(std::ostream& out, const TrainingCase& run);

/// The results of a run, which must not depend on its schedule.
struct Outcome {
  std::vector<double> losses, norms, evaluations;
  uint64_t hash = 0;  ///< of the state after the last step and its deferred updates
  bool operator==(const Outcome&) const = default;
};
std::string to_string(const Outcome& outcome);

struct Result {
  Outcome outcome;
  size_t loaded_bytes = 0;                             ///< in the last step
  std::vector<uint32_t> speculated = {}, undone = {};  ///< chunks per step
};

constexpr float kBitingNorm = 0.25f;
constexpr int64_t kLength = 32;

Preparation prepare_case(const Model& model, const TrainingCase& run, uint32_t rank = 0);
std::unique_ptr<Device> create_case_device(const Preparation& prepared, const TrainingCase& run);
/// Trains the model of the case on a device that poisons memory, or on one for each rank; then the
/// results are those of rank 0, and all ranks must have the same outcome. `before_step` is called
/// before each step and may change the trainer.
Result train(const TrainingCase& run);
Result train(const Model& model, const Preparation& prepared, const TrainingCase& run,
             const std::function<void(Trainer&, uint32_t step)>& before_step = {},
             Ranks* ranks = nullptr);

}  // namespace ebb::test
