// How long a model's own shapes take, where they are so small that rates alone are off.
//
// Rates are measured on long kernels. A step of a few hundred tokens is made of short ones, and was
// predicted up to a quarter too short, and more where loads keep weights out of the caches. So the
// model is trained a few steps before, or half its layers, or a quarter, as time and memory allow:
// nothing overlapped, and with chunks that move if they will. Longer kernels and larger models are
// not tried: there the rates hold.
#pragma once

#include <filesystem>
#include <optional>

#include "model_zoo/architecture.h"
#include "tools/machine_rates.h"

namespace ebb {

struct TrialShape {
  ModelConfig config = {};
  int64_t batch_size = 1;
  int64_t length = 1;
  uint32_t accumulation = 1;
  DType weight_type = DType::BF16;
  DType gradient_type = DType::BF16;
  size_t chunk_bytes = size_t{64} << 20;
  bool all_resident = false;
};

/// Where a trial's step is predicted: on the host it has no link, its copies are as fast as the
/// cores make them; a GPU's link is there.
Machine machine_of_trial(Machine machine, DeviceKind kind);

/// Measured over predicted step; nullopt where it is not tried.
std::optional<double> try_model(const TrialShape& shape, const DeviceOptions& options,
                                const Machine& machine);

/// The rates for this model: from a file beside theirs, or tried and kept there. Leaves those of a
/// rehearsal alone.
void fit_to_model(MachineRates& rates, const TrialShape& shape, const DeviceOptions& options,
                  const std::filesystem::path& folder);

}  // namespace ebb
