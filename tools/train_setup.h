// From flags to a run that can start: the model's shape, data, budgets and the plan. Takes no
// memory for the model.
//
// Errors: ConfigError (flags against model or data), IoError and FormatError (data), PlanError
// (does not fit).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "io/token_data.h"
#include "scheduler/run/learning_rate.h"
#include "scheduler/run/trainer.h"
#include "tools/batches.h"
#include "tools/machine_rates.h"
#include "tools/model_source.h"
#include "tools/train_options.h"

namespace ebb {

/// What lies beside token data; null where it was not given.
struct Annotations {
  std::unique_ptr<const LabelFile> labels;
  std::unique_ptr<const DocumentFile> documents;
};

struct TrainSetup {
  ModelSource source;
  BatchShape shape;  ///< of a step
  std::unique_ptr<const TokenData> data;
  std::unique_ptr<const TokenData> eval_data;  ///< null where there is no evaluation
  Annotations annotations, eval_annotations;   ///< of data and of eval_data
  std::optional<BatchShape> eval_shape;
  LearningRate learning_rate;
  std::unique_ptr<const Model> model;
  std::unique_ptr<const SourceWeights> weights;  ///< null: random, from the seed, or restored
  bool restores = false;                         ///< from a checkpoint
  DeviceOptions device;
  MachineRates rates;  ///< what the plan was chosen by
  Preparation prepared;

  uint64_t num_steps() const { return learning_rate.num_steps; }
  SampleSource samples() const {
    return {*data, annotations.labels.get(), annotations.documents.get()};
  }
  /// REQUIRES: there is an evaluation.
  SampleSource eval_samples() const {
    return {*eval_data, eval_annotations.labels.get(), eval_annotations.documents.get()};
  }
};

/// `restores`: a checkpoint gives the weights, whatever the source has.
TrainSetup set_up(const TrainOptions& options, bool restores = false);

/// Why `--device auto` takes the host on this machine; empty where it takes a GPU.
std::string why_no_cuda();

/// ", attention by cuDNN 9.19.0"; empty where all of it is ours.
std::string attention_text(const DeviceOptions& device);

/// The files of labels and documents beside `data`; "": none. Errors name file, index and value.
Annotations open_annotations(const std::string& labels, const std::string& documents,
                             const TokenData& data, const ModelSource& source);

/// "2 files are no text and left out; the first: 'x' ...": of folders; empty where none is.
std::string left_out_text(const TokenData& data);

// The parts of it that a plan alone takes as well.
/// What --preset, --model and --init say.
ModelSource model_source(const TrainOptions& options);
BatchShape batch_shape(const TrainOptions& options, const ModelSource& source);
DeviceOptions device_options(const TrainOptions& options);
/// What flags and this machine allow.
Budgets budgets_of(const TrainOptions& options, const DeviceOptions& device);
/// What is known of this machine, or measured.
MachineRates measured_rates(const TrainOptions& options, const DeviceOptions& device);
TrainerOptions trainer_options(const TrainOptions& options, const BatchShape& shape,
                               uint32_t evaluation_batches, bool random_weights);

}  // namespace ebb
