// AdamW on the host: one pass over the state where it lives, vectorised, with the same bits on
// every instruction set.
//
// PyTorch's AdamW (decoupled decay), in exactly this order and without contraction. `*` and `+` are
// fp32, each rounded once; sqrt and `/` are correctly rounded; denormal inputs and results count as
// zero. Constants are computed once a call, in double, and rounded to fp32 (AdamWCoefficients); p
// is the fp32 master, g the gradient.
//   g = gradient * gradient_scale
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + ((1 - beta2) * g) * g
//   denominator = sqrt(v) * v_correction + epsilon   v_correction = 1 / sqrt(1 - beta2^t)
//   change = decay_rate * p + step_size * (m / denominator)
//   p = p - change                                   decay_rate = lr * weight_decay
//                                                    step_size = lr / (1 - beta1^t)
// p is rounded once. (A factor 1 - lr * weight_decay would round p twice, and itself be off by up
// to 3e-8 to the same side in every step.)
//
// An element's result depends on its own state, gradient and the step alone: not on threads, nor on
// how n elements are cut into calls. NaN and Inf propagate (of a NaN, only that it is one is the
// same everywhere; master.h says how its master is kept): callers skip such steps.
//
// Thread-safety: any number of calls may run side by side on different planes, each with its own
// ThreadTeam. Nothing allocates. Broken contracts (t < 1, an unknown type, a missing plane) are
// LogicErrors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/adamw_options.h"
#include "device/dtype.h"
#include "device/kernels.h"
#include "device/planes.h"
#include "device/update_sizes.h"
#include "system/thread_team.h"

namespace ebb {

/// What all parameters of one optimizer step share.
struct AdamWStep {
  double learning_rate = 0;
  AdamW adam = {};
  int64_t t = 1;             ///< updates made so far including this one: the first is 1
  float gradient_scale = 1;  ///< unscaling times clipping
};

/// The constants of one call, for updates on another device, too. `decay_factor` multiplies
/// weight_decay (0: not decayed), `learning_rate_factor` the rate.
AdamWCoefficients adamw_coefficients(const AdamWStep& step, double decay_factor,
                                     double learning_rate_factor);

/// Views of n elements of each plane and of their gradient. They do not overlap.
struct Planes {
  /// fp32; bf16 with its remainder in `low`; or fp16, the rounded `master`, Inf from 65520 on.
  std::byte* weight = nullptr;
  int16_t* low = nullptr;   ///< of bf16 alone
  float* master = nullptr;  ///< of fp16 alone
  float* momentum = nullptr;
  float* variance = nullptr;
  const std::byte* gradient = nullptr;  ///< fp32, bf16 or fp16; adamw_update() reads it
  DType weight_dtype = DType::F32;
  DType gradient_dtype = DType::F32;

  /// The same planes from element `first` on.
  Planes from(int64_t first) const;
};

/// Elements of some planes that share their factors, as adamw_coefficients() takes them.
struct AdamWRange {
  int64_t first = 0;
  int64_t count = 0;
  double decay_factor = 1;
  double learning_rate_factor = 1;
};

/// One step over the runs of planes of n elements. Elements outside of them keep their values.
/// REQUIRES: the runs ascend, do not overlap and lie in [0, n).
void adamw_update(ThreadTeam& team, const Planes& planes, int64_t n,
                  std::span<const AdamWRange> runs, const AdamWStep& step);

/// Brings the planes to the memory of the NUMA nodes whose threads work on them in updates by this
/// team, of planes of n elements that begin here. Does nothing on one node; changes no content.
void move_planes_to_nodes(ThreadTeam& team, const Planes& planes, int64_t n);

/// One step over n elements.
void adamw_update(ThreadTeam& team, const Planes& planes, int64_t n, const AdamWStep& step,
                  double decay_factor, double learning_rate_factor);

/// The fp32 masters of the first masters.size() elements: for initialisation, hashing, export.
void read_masters(const Planes& planes, std::span<float> masters);
void write_masters(const Planes& planes, std::span<const float> masters);

}  // namespace ebb
