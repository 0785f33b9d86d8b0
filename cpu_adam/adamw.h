// AdamW on the host: one vectorised pass over the state in host memory, with the same bits on every
// instruction set.
//
// The formulas are those of PyTorch's AdamW (decoupled decay), in exactly this order and without
// fused multiply-add. `*` and `+` are fp32, each rounded once; sqrt and `/` are correctly rounded;
// denormal inputs and results count as zero. The coefficients are computed once per call, in
// double, and rounded to fp32 (AdamWCoefficients). p is the fp32 master, g the gradient.
//   g = gradient * gradient_scale
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + ((1 - beta2) * g) * g
//   denominator = sqrt(v) * v_correction + epsilon   v_correction = 1 / sqrt(1 - beta2^t)
//   change = decay_rate * p + step_size * (m / denominator)
//   p = p - change                                   decay_rate = lr * weight_decay
//                                                    step_size = lr / (1 - beta1^t)
// p is rounded once. (A factor 1 - lr * weight_decay would round p twice, and would itself have an
// error of up to 3e-8 with the same sign in every step.)
//
// The result of an element depends only on its own state, its gradient and the step: not on the
// number of threads, and not on the division of n elements into calls. NaN and Inf propagate, so
// callers skip such steps. The payload of a NaN depends on the instruction set;
// device/split_master.h documents the master of a NaN.
//
// Thread-safety: any number of calls may run concurrently on different planes, each with its own
// ThreadTeam. Nothing allocates. Broken contracts (t < 1, an unknown type, a missing plane) throw
// LogicError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/adamw_options.h"
#include "device/dtype.h"
#include "device/kernel_arguments.h"
#include "device/planes.h"
#include "device/update_sizes.h"
#include "system/thread_team.h"

namespace ebb {

/// The settings that all parameters of one optimizer step share.
struct AdamWStep {
  double learning_rate = 0;
  AdamW adam = {};
  int64_t t = 1;             ///< the number of this update, from 1
  float gradient_scale = 1;  ///< 1 / loss scale times the clip factor
};

/// The coefficients of one call, also for device updates. `decay_factor` multiplies weight_decay
/// (0: no decay); `learning_rate_factor` multiplies the learning rate.
AdamWCoefficients adamw_coefficients(const AdamWStep& step, double decay_factor,
                                     double learning_rate_factor);

/// Elements of planes that share the factors of adamw_coefficients().
struct AdamWRange {
  int64_t first = 0;
  int64_t count = 0;
  double decay_factor = 1;
  double learning_rate_factor = 1;
};

/// Updates the elements of the ranges, in planes of n elements with their gradient. Returns when
/// they are updated. All other elements keep their values. REQUIRES: the ranges ascend, do not
/// overlap and are within [0, n).
void adamw_update(ThreadTeam& team, const Planes& planes, int64_t n,
                  std::span<const AdamWRange> ranges, const AdamWStep& step);

/// The same, but the new weights go to `new_weights`. The weights of elements outside the ranges
/// are copied there, also if there are no ranges. The weights in `planes` keep their values, and
/// the other planes change in place; so the low half then belongs to `new_weights`. REQUIRES:
/// `new_weights` has n elements of the type of the weights and does not overlap the planes.
void adamw_update(ThreadTeam& team, const Planes& planes, std::byte* new_weights, int64_t n,
                  std::span<const AdamWRange> ranges, const AdamWStep& step);

/// Moves the pages of the planes to the NUMA nodes whose threads will update them. Has no effect on
/// a machine with one node. Changes no content; pages that cannot move stay. REQUIRES: later
/// updates use this team and the same n.
void move_planes_to_nodes(ThreadTeam& team, const Planes& planes, int64_t n);

/// Updates all n elements, with the same factors for all of them.
void adamw_update(ThreadTeam& team, const Planes& planes, int64_t n, const AdamWStep& step,
                  double decay_factor, double learning_rate_factor);

/// Read and write the fp32 masters of the first masters.size() elements. write_masters() also
/// writes the weights that the device computes with. REQUIRES: the planes of master_planes() are
/// not null.
void read_masters(const Planes& planes, std::span<float> masters);
void write_masters(const Planes& planes, std::span<const float> masters);

}  // namespace ebb
