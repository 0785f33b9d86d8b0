// Sets up `ebb eval` and `ebb generate`: loads the weights of a model and creates a device for its
// forward.
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
  std::vector<std::string> notices;  ///< about the host budget and the weights
};

/// Checks combinations of flags. The parser already rejects flags of training.
void validate_inference(const TrainOptions& options);

InferenceOptions inference_options(const TrainOptions& options, const ModelSource& source);

/// `plan` plans such passes for the flags that it receives. If `flags` do not fit, other flags are
/// planned too, and the PlanError lists the changes after which the model fits.
LoadedInference load_inference(const RunFlags& flags, const ModelSource& source,
                               std::span<const ForwardSpec> passes, const PlanInference& plan);

/// The lines about model and device that are printed on stderr.
std::string inference_header(const TrainOptions& options, const ModelSource& source,
                             const LoadedInference& loaded);

}  // namespace ebb
