// Checks what a plan does with the gradients of parameter chunks, from the first contribution to
// the update: each is rounded once, and stored once in its gradient buffer or kept where the device
// updates; the norm comes after all of them. Part of validate(); one thread.
#pragma once

#include <vector>

#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/validation_memory.h"

namespace ebb::validation {

class Gradients {
 public:
  /// Sets up what the step before left behind.
  Gradients(const Plan& plan, const Layout& layout, const PlanOptions& options, Memory& memory,
            Report& report);

  /// Counts a contribution of the trace to this parameter chunk.
  void expect_contribution(ChunkIndex chunk);
  void contribute(ChunkIndex chunk);
  void round(ChunkIndex chunk);
  /// A part of a chunk's gradient is stored.
  void fill_buffer(ChunkIndex chunk, BufferIndex buffer);
  void partials(ChunkIndex chunk);
  /// The groups of the chunk are added, and rounded into the buffer.
  void add(ChunkIndex chunk, BufferIndex buffer);
  void norm();
  void update(const Op& op);
  void speculate(const Op& op);
  void check_end();

 private:
  /// What happened to the gradient of a parameter chunk so far.
  struct Gradient {
    uint32_t num_contributions = 0, contributions_left = 0;
    uint32_t num_rounds = 0, num_stores = 0, num_updates = 0, num_deferred_updates = 0;
    uint32_t num_speculations = 0;
    OpIndex round = kNone;
  };

  /// A gradient buffer.
  struct GradientBuffer {
    ChunkIndex owner = kNone;
    uint32_t num_parts = 0;
    OpIndex last_store = kNone;
    OpIndex update = kNone;
  };

  uint32_t num_parts(ChunkIndex chunk) const;
  /// The index in buffers_ of the buffer that an operation or a record names. A gradient on the
  /// device of the owner has no buffer in the plan, but one here. kNone if there is no such buffer.
  BufferIndex buffer_of(ChunkIndex chunk, BufferIndex named) const;
  /// Is the gradient kept on the device until the update there?
  bool stays(ChunkIndex chunk) const { return plan_.chunks[chunk].is_on_device(); }
  void expect_deferred();
  bool holds(BufferIndex buffer, ChunkIndex chunk) const;
  void update_at_home(const Op& op);
  void update_on_device(ChunkIndex chunk);
  void check_deferred();
  void check_speculated();

  const Plan& plan_;
  const Layout& layout_;
  const PlanOptions& options_;
  Memory& memory_;
  Report& report_;
  std::vector<Gradient> gradients_;      // of parameter chunks
  std::vector<GradientBuffer> buffers_;  // those of the plan, then one for each chunk
  OpIndex norm_ = kNone, last_round_ = kNone, last_gradient_store_ = kNone;
};

}  // namespace ebb::validation
