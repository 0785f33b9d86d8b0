// The setup of `ebb eval` and `ebb generate`: the weights of a model and a device for its forward.
//
// Errors: as train_setup.h; PlanError if the plan does not fit.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "scheduler/run/inference.h"
#include "tools/advice.h"
#include "tools/model_source.h"
#include "tools/train_options.h"

namespace ebb {

/// The models of the passes must outlive this object.
struct LoadedInference {
  PreparedInference prepared;
  std::unique_ptr<Device> device;
  std::unique_ptr<Inference> inference;
};

/// Checks combinations of flags. The parser already rejects flags of training.
void validate_inference(const TrainOptions& options);

InferenceOptions inference_options(const TrainOptions& options, const ModelSource& source);

/// `plan` plans `flags` as `passes` are, and others: where it does not fit, the error names those
/// that do.
LoadedInference load_inference(const RunFlags& flags, const ModelSource& source,
                               std::span<const ForwardSpec> passes, const PlanInference& plan);

/// Model and device, for stderr.
std::string inference_header(const TrainOptions& options, const ModelSource& source,
                             const LoadedInference& loaded);

}  // namespace ebb
