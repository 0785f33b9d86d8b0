// Traces for the tests of planning: small models made from random numbers, without kernels.
#pragma once

#include <cstdint>
#include <random>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/trace.h"

namespace ebb::test {

struct CaseOptions {
  uint32_t num_layers = 4;
  uint32_t num_micro_batches = 1;
  bool training = true;
  bool tied = false;             ///< the first layer's parameter is used again by the loss
  uint32_t num_head_slices = 1;  ///< tied: moments that each use some rows of it, there and back
  bool recompute = false;
  bool rest = false;                ///< activations rest between their forward and their backward
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

Case make_case(const CaseOptions& options, uint64_t seed);
/// A case with options drawn from the seed as well.
Case make_any_case(uint64_t seed);
/// All parameters of `elements` each, no activations: one moment reads or writes one parameter.
/// Calls as text: "r0 w1" is a moment that reads parameter 0, then one that reads and writes 1.
Case make_case_from_text(const char* calls, uint32_t num_parameters, uint64_t elements,
                         uint32_t num_forward);

/// What make_plan was given, with what it made.
struct Planned {
  PlanOptions options;
  Plan plan;
};
Planned plan_case(const Case& c, uint32_t num_blocks, bool clipped, bool defer = false,
                  uint32_t resident_chunks = 0, uint32_t device_updates = 0);
uint32_t smallest_blocks(const Case& c, bool update = true);

}  // namespace ebb::test
