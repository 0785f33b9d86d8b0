// What a plan would take on a machine, and what no plan can beat. Pure functions.
//
// The simulation runs the plan's four lanes against a virtual clock: an operation starts when its
// lane is free and what it waits for is done. On the load lane the mover, or the stream, waits for
// each operation in turn, and the link takes copies in order; giving and taking blocks takes no
// time, whoever does it, and neither does the norm. Where cores are shared, copies take their
// part of them first, and kernels and the optimizer, while both have work, half of the rest each.
//
// Times are seconds, rates bytes or flops a second; a rate of 0 is no limit.
#pragma once

#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"
#include "scheduler/plan/trace.h"

namespace ebb {

struct Machine {
  double flops_per_s = 0;            ///< of matrix products
  double attention_flops_per_s = 0;  ///< 0: as fast as matrix products, and so the next
  double vector_flops_per_s = 0;     ///< of norms, activations, the loss
  double kernel_s = 0;               ///< what every kernel takes beside: to start it, and to end it
  double device_bytes_per_s = 0;     ///< device memory
  double load_bytes_per_s = 0;       ///< host to device
  double store_bytes_per_s = 0;
  double update_bytes_per_s = 0;  ///< host memory, for the optimizer
  bool shared_cores = false;  ///< kernels and the optimizer run on the same cores: their times add
  bool emulate_compute = false;  ///< shared cores: kernels take none, the others share them still
  double copy_bytes_per_s =
      0;  ///< shared cores: how fast all of them would copy; 0: copies take none of their time
};

/// Bytes of host memory the optimizer touches for each parameter.
double update_bytes_per_parameter(DType weight_type, DType gradient_type);

/// The least time a step can take that moves the plan's bytes (docs/memory.md, "Time"): max over
/// what can overlap, sum over what cannot. A clipped step falls in two: up to the first backward,
/// which the update may overlap, and the rest up to the norm. Loads for the
/// rest may come early, as far as the blocks hold them.
struct Bound {
  double seconds = 0;
  const char* bound_by =
      "compute";  ///< compute, load, store or update; clipped: of the longer part, by its name
  double compute_s = 0, load_s = 0, store_s = 0, update_s = 0;
};
Bound lower_bound(const Trace& trace, const Layout& layout, const Plan& plan,
                  const Machine& machine, bool clipped);

struct Simulation {
  double seconds = 0;
  double stream_busy_s[kNumStreamKinds] = {};  ///< of its operations, had nothing slowed them down
  double stall_s = 0;  ///< the compute lane waiting, between its first and last operation
  std::vector<OpTime> ops;
};
Simulation simulate(const Plan& plan, const Trace& trace, const Layout& layout,
                    const Machine& machine);

}  // namespace ebb
