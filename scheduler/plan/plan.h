// The plan: when bytes move. Data, made by a pure function from a trace, a layout and a number of
// blocks.
//
// A plan is a list of operations in the order in which they are submitted. Each runs on one of four
// lanes, in order within its lane; across lanes it waits for the events of the operations it names.
// It is executed (executor.h), validated (validate.h), simulated (simulate.h), printed and
// compared.
//
// Eviction: furthest next use (Belady), exact because every chunk takes one block, of the chunks
// that were not used just now: theirs is the only block that is not free in time. An activation
// chunk that will live again counts as used again. Prefetch: a load starts as soon as the block it
// was given is free, earliest deadline first; loads take blocks in the order in which they became
// free, so that they start early. It costs no extra block. What is not copied is given a block when
// it is needed, one that became free shortly before.
//
// The update makes every weight stale, so a plan starts and ends with nothing on the device, but
// for weights that are held: what was updated early in backward comes back before the step ends, to
// be there when the next begins. Loads are then spread over the step as compute is; without, the
// forward, a third of the compute, has to wait for half of them.
//
// Updates that a step need not wait for are carried into the next one: its plan begins with them,
// in the order in which its forward needs the weights, and the load of a chunk waits for its
// update. So a plan is what every step does, and the same operations make the last step's end
// (make_flush_plan).
//
// Where blocks and memory are left, some chunks live on the device, with all that the optimizer
// keeps of them, and are updated there. They get their blocks once (make_initialise_plan), and
// nothing of them ever moves. They are those whose gradients are finished last, and whose weights
// are needed first.
//
// Everything here is a plain value or a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/chunk_table.h"
#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "scheduler/plan/trace.h"

namespace ebb {

struct ChunkTrace;  // scheduler/plan/chunk_trace.h

enum class OpKind : uint8_t {
  Call,       ///< the kernels of a call
  Round,      ///< round the finished gradient of a parameter chunk, and sum its squares
  Update,     ///< the optimizer's step on a parameter chunk: on the host, or on the compute stream
  Speculate,  ///< an update on the host before the norm is known, which can be rolled back
  StorePartialNorms,  ///< copy the partial norms of a chunk to the host; its gradient stays
  Norm,               ///< add up the partial norms and fix the clip scale
  Move,               ///< copy a chunk from one tier to another; from None: allocate, copy nothing
  Drop,               ///< forget the copy of a chunk on the device
};
std::string_view name_of(OpKind kind);

inline constexpr uint32_t kNone = UINT32_MAX;

struct Op {
  OpKind kind = OpKind::Call;
  StreamKind stream = StreamKind::Compute;
  Tier from = Tier::None;  ///< Move
  Tier to = Tier::None;    ///< Move
  ChunkId chunk = {};      ///< Move, Drop; Finish and Update: the parameter chunk (Space::Weights)
  uint32_t call = kNone;   ///< Run
  uint32_t block = kNone;  ///< Move to the device, and Drop
  uint32_t gradient_buffer =
      kNone;                ///< Move of a gradient home, and Update there: the gradient slot
  bool deferred = false;    ///< Update: of the step before this one
  uint32_t first_wait = 0;  ///< in Plan::waits
  uint32_t num_waits = 0;
};

/// A forward is a third of a step's compute and half of its loads: the optimizer is then as busy
/// beside it as beside the backward.
constexpr double kDeferredShare = 0.5;

/// One comes home, one is updated, and one each to wait before and behind.
constexpr uint32_t kGradientBuffers = 4;

/// What the planner may decide.
struct PlanOptions {
  uint32_t num_blocks = 0;
  bool update = true;             ///< false: evaluation, weights stay as they are
  bool update_after_norm = true;  ///< clipping: no update before the norm is known
  /// Without clipping: chunks of gradients on their way to the update in this step.
  uint32_t gradient_buffers = kGradientBuffers;
  bool defer_updates = false;  ///< into the next step: with clipping all, else a share
  double deferred_share = kDeferredShare;
  /// With clipping, of the updates that are carried: chunks to update during the backward in the
  /// hope that clipping will not bite, if so many can be. Their carried update then only undoes and
  /// makes again what has to be.
  uint32_t speculated_chunks = 0;
  uint32_t resident_chunks = 0;  ///< chunks of weights to hold from step to step, if so many can
                                 ///< be; none where updates come after the norm. Of evaluations:
                                 ///< from one to the next, all the time
  uint32_t device_updates = 0;   ///< chunks to update on the device, if so many can be
  std::vector<uint32_t> device_chunks = {};  ///< of an evaluation: those that live there, ascending
  bool least_traffic = false;  ///< evict by next use alone: a few moves less, later starts
};

/// An update that is left to the next step.
struct DeferredUpdate {
  uint32_t chunk = 0;
  uint32_t gradient_buffer = 0;
};

/// Weights on the device while no step runs.
struct ResidentChunk {
  uint32_t chunk = 0;
  uint32_t block = 0;
};

struct Plan {
  std::vector<Op> ops;
  std::vector<uint32_t> waits;  ///< indices of operations
  uint32_t num_blocks = 0;
  uint32_t gradient_buffers = 0;
  std::vector<uint32_t>
      stored_sums;  ///< sum chunks that leave the device between their uses, ascending
  std::vector<uint32_t> stored_activations;  ///< arena chunks that leave while they rest, ascending
  std::vector<DeferredUpdate> deferred;      ///< ascending; the first operations of the next step
  std::vector<uint32_t> speculated;          ///< of those carried, ascending
  /// The same chunks, as a rule in other blocks.
  std::vector<ResidentChunk> resident_at_start, resident_at_end;
  std::vector<uint32_t> device_updates;  ///< of those held: they live on the device, ascending
  size_t loaded_bytes = 0;               ///< chunks only
  size_t stored_bytes = 0;
  uint32_t peak_blocks = 0;  ///< the most blocks in use at once

  std::span<const uint32_t> waits_of(const Op& op) const {
    return std::span(waits).subspan(op.first_wait, op.num_waits);
  }
};

/// REQUIRES: options.num_blocks >= smallest_num_blocks(trace, layout); otherwise PlanError.
Plan make_plan(const Trace& trace, const Layout& layout, const PlanOptions& options);
/// The same for who has the program already: with gradients if options.update.
Plan make_plan(const ChunkTrace& chunk_trace, const Trace& trace, const Layout& layout,
               const PlanOptions& options);

/// From an empty device to one with blocks for what lives there.
Plan make_initialise_plan(const Plan& plan);
/// From that to what a step starts with.
Plan make_warm_up_plan(const Plan& plan, const Layout& layout);
/// And back, from what a step left over: its updates are made, held weights are dropped.
Plan make_flush_plan(const Plan& plan);

/// Blocks of the largest moment, by space: what no plan can do without.
struct BlockNeed {
  uint32_t num_blocks = 0;
  uint32_t by_space[kNumSpaces] = {};
  std::string_view call;  ///< which moment it is
};
BlockNeed smallest_need(const Trace& trace, const Layout& layout, bool update);
BlockNeed smallest_need(const ChunkTrace& chunk_trace, const Trace& trace);
/// Blocks with which nothing is ever evicted before its last use.
uint32_t full_num_blocks(const Trace& trace, const Layout& layout, const PlanOptions& options);

/// Blocks that a chunk takes all the time where the device updates it: for its weights, and for its
/// gradient where that waits for the norm.
uint32_t blocks_of_device_update(const Layout& layout, bool after_norm);

/// Parameter chunks that some moment writes gradients of, in the order of their last contribution.
std::vector<uint32_t> round_order(const Trace& trace, const Layout& layout);

std::string to_string(const Plan& plan, const Trace& trace);

}  // namespace ebb
