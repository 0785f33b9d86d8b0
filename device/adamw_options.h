// The settings of AdamW that stay the same during a run. A plain value.
#pragma once

namespace ebb {

/// PyTorch's names (torch.optim.AdamW); the formulas are in cpu_adam/adamw.h.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;

  bool operator==(const AdamW&) const = default;
};

}  // namespace ebb
