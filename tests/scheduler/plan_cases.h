// Traces for the tests of planning: small random models without kernels. A seed gives the same case
// every time. Sizes are bytes, unless they say elements.
#pragma once

#include <cstdint>
#include <random>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/trace.h"

namespace ebb::test {

/// A chain of layers; each has one to three parameters and one activation.
struct CaseOptions {
  uint32_t num_layers = 4;
  uint32_t num_micro_batches = 1;
  bool training = true;
  bool tied = false;  ///< the loss uses the first layer's first parameter again
  uint32_t num_head_slices =
      1;  ///< if tied: the number of calls of the loss, each with a part of the rows
  bool recompute = false;
  bool idle = false;  ///< activations are idle between their forward and their backward
  uint64_t max_elements = 200'000;  ///< of a parameter; a chunk has 65,536 bf16 elements
  size_t max_activation_bytes = 300'000;
  DType weight_type = DType::BF16;
  DType gradient_type = DType::BF16;
  size_t chunk_bytes = 128 << 10;
};

struct Case {
  Trace trace;
  Layout layout;
};

/// A case with random parameter sizes, activation sizes and costs.
Case make_case(const CaseOptions& options, uint64_t seed);
/// A case with random options, too.
Case make_any_case(uint64_t seed);
/// A case from a list of calls: in "r0 w1", the first call reads parameter 0; the second one reads
/// parameter 1 and writes its gradient. The first `num_forward` calls are the forward. The
/// parameters are "p.0", "p.1" and so on, with `elements` elements. There are no activations. A
/// call has 100 flops and 10 bytes.
Case make_case_from_text(const char* calls, uint32_t num_parameters, uint64_t elements,
                         uint32_t num_forward);

/// A plan with the options that it was made with.
struct Planned {
  PlanOptions options;
  Plan plan;
};
/// Plans a case with two gradient buffers. `clipped` is PlanOptions::update_after_norm. `defer`:
/// the updates are overlapped. The other arguments are settings of the schedule.
Planned plan_case(const Case& c, uint32_t num_blocks, bool clipped, bool defer = false,
                  uint32_t resident_chunks = 0, uint32_t device_updates = 0,
                  uint32_t kept_sums = 0);
/// A plan with few blocks; the seed chooses their number, clipping, and whether updates overlap.
Plan plan_of_any_case(const Case& c, uint64_t seed);
/// The smallest number of blocks with which the case has a plan.
uint32_t smallest_blocks(const Case& c, bool update = true);

}  // namespace ebb::test
