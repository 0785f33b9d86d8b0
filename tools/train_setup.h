// Converts flags into a run that can start: the model's shape, data, budgets and the plan.
// Allocates no memory for the model.
//
// Errors: ConfigError (flags against model or data), IoError and FormatError (data), PlanError
// (does not fit).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/token_data.h"
#include "scheduler/run/learning_rate.h"
#include "scheduler/run/trainer.h"
#include "tools/batches.h"
#include "tools/machine_rates.h"
#include "tools/model_source.h"
#include "tools/run_data.h"
#include "tools/train_options.h"

namespace ebb {

struct TrainSetup {
  ModelSource source;
  BatchShape shape;  ///< of a step
  RunData data;
  std::optional<RunData> eval_data;  ///< nullopt: there is no evaluation
  std::optional<BatchShape> eval_shape;
  std::vector<std::string> notices;  ///< about the data and the weights
  LearningRate learning_rate;
  std::unique_ptr<const Model> model;
  std::unique_ptr<const SourceWeights>
      weights;            ///< null: weights are random or come from a checkpoint
  bool restores = false;  ///< weights come from a checkpoint
  DeviceOptions device;
  MachineRates rates;  ///< the rates from which the plan was chosen, of all ranks
  Preparation prepared;
  StepPrediction predicted;  ///< of all ranks together, on rank 0; on the others, of one rank
  Ranks* ranks = nullptr;    ///< null: there is one rank

  uint64_t num_steps() const { return learning_rate.num_steps; }
  /// Whether a thing that is done every `interval` steps is due. The last step is always one.
  bool is_due(uint64_t step, uint64_t interval) const {
    return step % interval == 0 || step == num_steps();
  }
};

/// Sets everything except the rates, the plan and device.memory_bytes. `restores`: the weights
/// come from a checkpoint, even if the source has weights.
TrainSetup set_up(const TrainOptions& options, bool restores = false);
/// Plans the run of this rank and sets the rates, `prepared` and device.memory_bytes. Throws
/// PlanError if the run does not fit.
void plan_run(const TrainOptions& options, TrainSetup& setup);

/// Why `--device auto` chooses the host on this machine; empty if it chooses a GPU.
std::string why_no_cuda();

/// The attention kernels of a GPU: ", attention by cuDNN 9.19.0" or ", attention by Ebb's kernels".
std::string attention_text(const DeviceOptions& device);
/// A notice if the user's host budget is above the memory that is available; otherwise nothing.
std::vector<std::string> host_memory_notices(const TrainOptions& options);
/// Prints the notices of the kernels (Kernels::take_notices()) on stderr, one in each line.
void say_notices(Device& device);

// The parts of the setup that `ebb plan` uses too.
/// The model of --preset, --model and --init.
ModelSource model_source(const TrainOptions& options);
BatchShape batch_shape(const TrainOptions& options, const ModelSource& source);
DeviceOptions device_options(const TrainOptions& options);
/// The number of the GPU of a rank: the GPUs `chosen` by --devices, or all of them, are dealt to
/// the ranks of a machine in turn. Throws ConfigError if a chosen GPU does not exist.
int gpu_of_rank(std::span<const int> chosen, const RankPlace& place, size_t num_gpus);
/// The host budget without --host-memory: the memory that is available on this machine. For a GPU 2
/// GiB of it are left free, because pinned memory cannot be reclaimed when other programs need
/// more. A plan counts what CUDA, its libraries and page tables take (device/driver_memory.h).
size_t default_host_memory(DeviceKind device);
/// The budget of host and device memory together, if the device's memory is host memory: what is
/// available, or the budgets of the user if the host budget is larger.
size_t total_memory(const TrainOptions& options, size_t available_bytes);
/// Rank 0 of this run, or of the ranks with which to plan.
RankPlace planned_place(const TrainOptions& options);
/// What each rank gets of something that is divided among the ranks of a machine.
size_t share_of_rank(size_t whole, const TrainOptions& options);
/// The budgets of a rank from the flags and the memory of this machine.
Budgets budgets_of(const TrainOptions& options, const DeviceOptions& device);
/// The device of a single rank, which has all threads.
DeviceOptions whole_device_options(const TrainOptions& options);
/// The rates of this machine, from the cache folder or measured now.
MachineRates measured_rates(const TrainOptions& options, const DeviceOptions& device,
                            Kept kept = Kept::Use);
TrainerOptions trainer_options(const TrainOptions& options, const BatchShape& shape,
                               uint32_t evaluation_batches, bool random_weights);

}  // namespace ebb
