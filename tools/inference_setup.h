// What `ebb eval` and `ebb generate` have in common: a model's weights, and a device that runs it
// forward.
//
// Errors: as train_setup.h; PlanError where it does not fit.
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

/// Models of the passes must outlive this.
struct LoadedInference {
  PreparedInference prepared;
  std::unique_ptr<Device> device;
  std::unique_ptr<Inference> inference;
};

/// What flags may not say together: those of training alone are unknown here already.
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
