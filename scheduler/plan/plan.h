// The plan of a step: which bytes move when. It is data, made by a pure function from a trace, a
// layout and a number of blocks.
//
// A plan is a list of operations (op.h) and a record for each parameter chunk. Two threads submit
// the operations, each its own in the order of the list. A plan is executed
// (scheduler/run/executor.h), validated (validate.h), simulated (simulate.h), printed and compared.
// With several ranks, each has a plan of its own (message.h).
//
// If a chunk needs a block and none is free, the chunk leaves whose next use is furthest away
// (Belady). This needs the fewest moves, because every chunk takes one block. Chunks that were used
// just now do not leave yet: their block would not be free in time. They may leave when an eighth
// of all blocks have got new chunks. The next use of an activation chunk that no call uses for a
// while is the call that needs it again.
//
// Prefetch starts a load as soon as its block is free, earliest deadline (its next use) first.
// Loads take blocks in the order in which they became free, so that they start early and need no
// additional block. A chunk that is not copied is allocated when it is needed, in a block that
// became free recently, but not just now.
//
// The updates of a step change every weight, so a plan starts and ends with an empty device, except
// for resident weights: with neither clipping nor fp16, some chunks are updated early
// (UpdateTime::Early) and loaded again before the step ends, so that the next forward finds them.
// Then each part of the step has loads in proportion to its compute. Without resident weights the
// forward, a third of the compute, has half of the loads.
//
// Unless schedule.update is Wait, as in kDefaultSchedule, some updates are deferred: with clipping
// or fp16 all of the update thread, otherwise a share. The plan begins with the deferred updates of
// the step before, in the order in which the forward needs the weights, and the load of a chunk
// waits for its update. In step 0, and after a step that was skipped (with clipping or fp16,
// because its norm is not finite), these updates do nothing. So every step has the same plan. If no
// step follows at once, the plan of make_flush_plan() makes the updates that are left.
//
// With PlanOptions::delayed_updates all updates run during the next step, but no load waits for
// them, because loads copy the weights before these updates. The gradient buffer of a chunk still
// has the gradient of the step before, so the new gradient is stored after the update that reads
// it.
//
// If blocks and memory are left, some chunks have all their planes on the device and are updated
// there. Their weights take blocks, which they get once (make_initialise_plan) and keep; their
// other planes are beside the blocks. The planner chooses the chunks whose gradients are finished
// last and whose weights the forward needs first.
//
// With several ranks whose devices add the sums of groups, the planes of some chunks are on the
// devices of their owners (ChunkRecord::is_on_owner): the first ones, as many of each rank. These
// devices update them, deferred with clipping or fp16 and early otherwise. A rank copies the
// weights of a chunk from there to a block before a call uses them.
//
// Everything here is a plain value or a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "scheduler/plan/groups.h"
#include "scheduler/plan/op.h"
#include "scheduler/plan/schedule.h"
#include "scheduler/plan/trace.h"

namespace ebb {

struct ChunkTrace;  // scheduler/plan/chunk_trace.h

/// Without clipping and with UpdateOrder::Overlap: the share of the updates that is deferred. The
/// default schedule has UpdateOrder::Wait, so it defers none. The forward is a third of a step's
/// compute but has half of its loads, so with this share the optimizer is as busy during the
/// forward as during the backward.
inline constexpr double kDeferredShare = 0.5;

/// Without clipping: a store fills one gradient buffer, an update reads one, one is free for the
/// next store, and one is full for the next update. With clipping, each chunk that the host updates
/// has its own.
inline constexpr uint32_t kGradientBuffers = 4;

inline constexpr Schedule kDefaultSchedule{.deferred_share = kDeferredShare,
                                           .gradient_buffers = kGradientBuffers};

/// One slot is loaded from, and three are filled.
inline constexpr uint32_t kFetchSlots = 4;

/// What make_plan() is to do.
struct PlanOptions {
  uint32_t num_blocks = 0;
  bool update = true;  ///< false: an evaluation, which has no gradients and no updates
  /// True with clipping, fp16 or delayed updates: then only speculative updates are made before the
  /// norm is known.
  /// The norm is always computed.
  bool update_after_norm = true;
  /// All updates are UpdateTime::Delayed, and run on the host. REQUIRES: update_after_norm is true,
  /// and schedule.update is not Wait.
  bool delayed_updates = false;
  /// make_plan() uses all settings but micro-batch order, recomputation and placement of
  /// activations, which the trace has. With clipping or fp16, all updates on the host are deferred
  /// unless schedule.update is Wait, and no weights that the host updates are resident. In an
  /// evaluation, resident weights stay all the time, also until the next one; other settings have
  /// no effect. A schedule that is given replaces kDefaultSchedule as a whole.
  Schedule schedule = kDefaultSchedule;
  /// For an evaluation: the records of the step, which say whose planes are on the device. Empty:
  /// all planes are in host memory.
  std::vector<ChunkRecord> chunks_of_step = {};
  bool least_traffic = false;  ///< do not protect chunks: fewer moves, but loads start later
  Division division = {};      ///< the plan is for the rank division.place.rank
};

struct Plan {
  std::vector<Op> ops = {};
  std::vector<OpIndex> waits = {};
  /// 0 in the plans that make_initialise_plan(), make_warm_up_plan() and make_flush_plan() return.
  uint32_t num_blocks = 0;
  /// [parameter chunk] what the plan decides about it. These three plans have the records of their
  /// step, but first_block and last_block are their own.
  std::vector<ChunkRecord> chunks = {};
  uint32_t gradient_buffers = 0;  ///< 0 in these three plans
  Division division = {};         ///< as in PlanOptions
  uint32_t sum_slots = 0;         ///< for Op::slot of gradient sums
  std::vector<uint32_t> stored_sums =
      {};  ///< chunks of gradient sums that leave the device between uses, ascending
  std::vector<uint32_t> stored_activations =
      {};                      ///< chunks of activations that leave between uses, ascending
  size_t loaded_bytes = 0;     ///< of chunks; also of those that are gathered
  size_t gathered_bytes = 0;   ///< of weights from devices of this machine
  size_t part_bytes = 0;       ///< of this rank's parts of split loads from host memory
  size_t stored_bytes = 0;     ///< of stores to host memory; not of partial norms and AddGroups
  uint32_t fetch_slots = 0;    ///< for Op::slot of weights
  uint32_t running_slots = 0;  ///< for Op::slot of running sums; the same on all ranks
  size_t fetched_bytes = 0;    ///< of weights; not of running sums
  uint32_t peak_blocks = 0;    ///< the most blocks in use at once

  /// The bytes of all loads, loads of parts and stores.
  size_t copied_bytes() const { return loaded_bytes + part_bytes + stored_bytes; }
  /// The number of chunks of which this is true, for example count(&ChunkRecord::is_deferred).
  uint32_t count(bool (ChunkRecord::*is)() const) const;
  /// These chunks, ascending.
  std::vector<ChunkIndex> chunks_that(bool (ChunkRecord::*are)() const) const;
  /// The chunks that have a block when the plan begins (&ChunkRecord::first_block), or when it ends
  /// (&ChunkRecord::last_block), sorted by block.
  std::vector<ChunkIndex> chunks_by(BlockIndex ChunkRecord::*block) const;

  std::span<const OpIndex> waits_of(const Op& op) const {
    return std::span(waits).subspan(op.first_wait, op.num_waits);
  }
};

/// Are loads of this chunk split (split_loads.h)?
inline bool are_loads_split(ChunkId chunk, const PlanOptions& options) {
  return options.update && options.division.splits_loads && chunk.space == Space::Weights;
}
/// The tier from which a load of this chunk copies, or for weights of a split load, the load of a
/// part.
Tier source_of(ChunkId chunk, const Plan& plan);
/// The bytes that a Move copies: what its chunk has in use, what these sums take in a sum slot; for
/// the load of a part and its fetch, the bytes of the part of this rank.
size_t bytes_of_move(const Op& move, const Layout& layout, const Division& division);

/// Throws PlanError where options.num_blocks < smallest_need(chunk_trace, trace).num_blocks
/// (block_need.h).
Plan make_plan(const Trace& trace, const Layout& layout, const PlanOptions& options);
/// The same, if the caller has make_chunk_trace(trace, layout, options.update, options.division)
/// already.
Plan make_plan(const ChunkTrace& chunk_trace, const Trace& trace, const Layout& layout,
               const PlanOptions& options);

/// Returns the plan that allocates blocks for the chunks that are updated on the device. The blocks
/// have no content yet. REQUIRES: no chunk is on the device when it runs.
Plan make_initialise_plan(const Plan& plan);
/// Returns the plan that loads the resident weights that a step expects. It runs before a step that
/// follows no other step: after the plan of make_initialise_plan() or of make_flush_plan().
Plan make_warm_up_plan(const Plan& plan, const Layout& layout);
/// Returns the plan that makes the deferred updates of the last step and drops the resident
/// weights, except those of Tier::Device. REQUIRES: the plan that ran last is `plan`.
Plan make_flush_plan(const Plan& plan);

std::string to_string(const Plan& plan, const Trace& trace);

}  // namespace ebb
