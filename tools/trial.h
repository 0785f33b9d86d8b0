// How long a model's own shapes take, where they are so small that rates alone are off.
//
// Rates are measured on long kernels. A step of a few hundred tokens is made of short ones, and was
// predicted up to a quarter too short. So two steps' worth of the model are tried before: of one
// layer, and of three, everything resident and nothing overlapped; what a layer adds stands for all
// of them. Long kernels and large models are not tried: there the rates hold.
#pragma once

#include <filesystem>
#include <optional>

#include "model_zoo/gpt2.h"
#include "tools/machine_rates.h"

namespace ebb {

struct TrialShape {
  Gpt2Config config = {};
  int64_t batch_size = 1;
  int64_t length = 1;
  uint32_t accumulation = 1;
  DType weight_type = DType::BF16;
  DType gradient_type = DType::BF16;
};

/// Measured over predicted compute; nullopt where it is not tried.
std::optional<double> try_model(const TrialShape& shape, const DeviceOptions& options,
                                const Machine& machine);

/// The rates for this model: from a file beside theirs, or tried and kept there. Leaves those of a
/// rehearsal alone.
void fit_to_model(MachineRates& rates, const TrialShape& shape, const DeviceOptions& options,
                  const std::filesystem::path& folder);

}  // namespace ebb
