// The plan of a step: which bytes move when. It is data, made by a pure function from a trace, a
// layout and a number of blocks.
//
// A plan is a list of operations, in the order in which they are submitted. Each operation runs on
// one of seven streams. Operations of one stream run in order; an operation also waits for the
// events of the operations that it names. Drops and allocations take no time and have no event. If
// an operation names a drop, it waits for the operations that the drop names. A plan is executed
// (scheduler/run/executor.h), validated (validate.h), simulated (simulate.h), printed and compared.
//
// Eviction chooses the chunk whose next use is furthest away (Belady), which is exact because every
// chunk takes one block. Chunks that were used just now are protected: their block would not be
// free in time. The protection ends when an eighth of all blocks have got new chunks. The next use
// of an idle activation chunk is the call that needs it again.
//
// Prefetch starts a load as soon as its block is free, earliest deadline (its next use) first.
// Loads take blocks in the order in which they became free, so that they start early and need no
// additional block. A chunk that is not copied is allocated when it is needed, in a block that
// became free last.
//
// An update changes every weight, so a plan starts and ends with an empty device, except for
// resident weights: chunks that are updated early in the backward are loaded again before the step
// ends, so that the next forward finds them. Then each part of the step has loads in proportion to
// its compute. Without resident weights the forward, a third of the compute, has half of the loads.
//
// Updates that a step need not wait for are deferred: the plan begins with the deferred updates of
// the step before, in the order in which the forward needs the weights, and the load of a chunk
// waits for its update. In step 0, and after a step that was skipped because its norm is not
// finite, these updates do nothing. So every step has the same plan. After the last step,
// make_flush_plan() makes the updates that are left.
//
// If blocks and memory are left, some chunks have all their planes on the device and are updated
// there. Their weights take blocks; their other planes are beside the blocks. They get their blocks
// once (make_initialise_plan) and never move. The planner chooses the chunks whose gradients are
// finished last and whose weights the forward needs first.
//
// With several ranks, each has a plan of its own. It loads weights from the memory of their owner,
// stores gradient sums in slots of its own memory, of the host or of the device, and adds and
// updates its own chunks only. Ranks meet in messages, which carry no bytes: a rank can address or
// read the memory of all others. The weights of an owner on another machine are fetched to a slot
// in host memory and loaded from there.
//
// Everything here is a plain value or a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "device/planes.h"
#include "device/stream.h"
#include "scheduler/plan/groups.h"
#include "scheduler/plan/schedule.h"
#include "scheduler/plan/trace.h"

namespace ebb {

using OpIndex = Index<struct OpTag>;  ///< in Plan::ops

struct ChunkTrace;  // scheduler/plan/chunk_trace.h

enum class OpKind : uint8_t {
  Call,  ///< the kernels of a call
  /// Round the gradient sums of a parameter chunk to its finished gradient, after the last call
  /// that adds to these sums or reads weights of the chunk. So an update may follow at once.
  Round,
  Update,     ///< the optimizer's step on a parameter chunk: on the host, or on the compute stream
  Speculate,  ///< an update on the host before the norm is known, which can be rolled back
  /// Copy the partial norms of a chunk to the host; its gradient stays on the device. (If a
  /// gradient is stored, the store copies the partial norms as well.)
  StorePartialNorms,
  /// Add up the partial norms and fix the clip scale. If the step is skipped, also roll back all
  /// speculative updates. It names only the last operation that makes partial norms, because the
  /// others come before it on the same stream: a store of a gradient or of partial norms, or with
  /// groups AddGroups. With several ranks it also names the Receive of the norms.
  Norm,
  /// Add the stored sums of all groups for a parameter chunk of this rank, round them to the
  /// finished gradient in host memory, and make its partial norms. It takes the place of Round.
  AddGroups,
  Send,     ///< tell the other ranks that something is done (Op::message)
  Receive,  ///< wait until this message is sent by the ranks that send it (Message)
  Move,     ///< copy a chunk from one tier to another; from None: allocate, copy nothing
  /// Forget the copy of a chunk on the device. The plan has it immediately before the move that
  /// takes the block, on the stream of that move; until then the chunk stays on the device. The
  /// drops that empty the device at the end of a plan are on the load stream and have no move.
  Drop,
};
std::string_view name_of(OpKind kind);

/// What a Send or a Receive is about.
enum class Message : uint8_t {
  Weights,  ///< a parameter chunk is updated; the owner sends it
  /// All gradient sums of a rank for a parameter chunk are in slots, and the rank no longer needs
  /// the present weights of the chunk. All other ranks send it to the owner.
  Sums,
  Added,  ///< the sums of a parameter chunk are added, so their slots are free; the owner sends it
  /// A rank has made the partial norms of its chunks. All ranks send it, and each receives those of
  /// all others.
  Norms,
};
std::string_view name_of(Message message);
/// The stream of a Send. Messages of the owner follow an operation of the update stream, and run
/// there: on the send stream they would delay the later messages of this rank until it ends.
constexpr StreamKind stream_of_send(Message message) {
  const bool is_of_owner = message == Message::Weights || message == Message::Added;
  return is_of_owner ? StreamKind::Update : StreamKind::Send;
}

struct Op {
  OpKind kind = OpKind::Call;
  StreamKind stream = StreamKind::Compute;
  Tier from = Tier::None;  ///< Move
  Tier to = Tier::None;    ///< Move
  /// Move of a parameter chunk: the plane, an index of state_planes(). Only kWeightPlane works:
  /// executor and simulator take sizes and addresses from the type of the weights. Chunks of other
  /// spaces have one plane.
  uint8_t plane = kWeightPlane;
  /// Move, Drop: any chunk; others: the parameter chunk (Space::Weights). No meaning for norms.
  ChunkId chunk = {};
  CallIndex call = kNone;    ///< Call
  BlockIndex block = kNone;  ///< Move to the device, and Drop
  /// Move of a gradient to the host; AddGroups, Speculate, Update on the host.
  BufferIndex gradient_buffer = kNone;
  /// The index of a sum slot (store or share of complete gradient sums) or of a fetch slot (fetch
  /// of weights, and load of fetched weights).
  BufferIndex slot = kNone;
  Message message = Message::Weights;  ///< Send, Receive
  /// Update: it belongs to the step before this one. Send, Receive of weights: after that update.
  bool deferred = false;
  uint32_t first_wait = 0;  ///< in Plan::waits; they name earlier operations
  uint32_t num_waits = 0;
};

/// Is the operation a load or a store?
inline bool is_copy(const Op& op) {
  return op.kind == OpKind::Move && op.from != Tier::None && op.from != Tier::Peer &&
         op.to != Tier::Peer;
}
/// Does it copy complete gradient sums to a slot in the memory of this rank's device, in which the
/// devices of other ranks read them?
inline bool is_share(const Op& op) { return op.kind == OpKind::Move && op.to == Tier::Peer; }

/// What a Move between two tiers is called, and the stream on which it runs.
struct MoveInfo {
  Tier from;
  Tier to;
  std::string_view name;
  StreamKind stream;
};
/// All moves that exist. A further tier adds rows. If planes are stored there, all code that takes
/// "not on the device" for "in host memory" changes, too: decide_chunks, residency, emitter,
/// executor, validator, simulator, home, state, optimizer and ledgers.
inline constexpr MoveInfo kMoves[] = {
    {Tier::None, Tier::Device, "allocate", StreamKind::Compute},
    {Tier::Host, Tier::Device, "load", StreamKind::Load},
    {Tier::Device, Tier::Host, "store", StreamKind::Store},
    {Tier::Peer, Tier::Host, "fetch", StreamKind::Fetch},
    {Tier::Device, Tier::Peer, "share", StreamKind::Store},
};
/// The row of a move; null if the move does not exist.
const MoveInfo* find_move(Tier from, Tier to);
/// A Move of the chunk on its stream. REQUIRES: the move exists.
Op make_move(ChunkId chunk, Tier from, Tier to, BlockIndex block = kNone);
/// The name of a move ("load"), or the name of the kind.
std::string_view name_of(const Op& op);

/// The share of the updates that is deferred without clipping. The forward is a third of a step's
/// compute but has half of its loads, so with this share the optimizer is as busy during the
/// forward as during the backward.
inline constexpr double kDeferredShare = 0.5;

/// A store fills one gradient buffer, an update reads one, one is free for the next store, and one
/// is full for the next update.
inline constexpr uint32_t kGradientBuffers = 4;

inline constexpr Schedule kDefaultSchedule{.deferred_share = kDeferredShare,
                                           .gradient_buffers = kGradientBuffers};

/// One slot is loaded from, and three are filled.
inline constexpr uint32_t kFetchSlots = 4;

/// What make_plan() is to do.
struct PlanOptions {
  uint32_t num_blocks = 0;
  bool update = true;  ///< false: an evaluation, which has no gradients and no updates
  /// With clipping or fp16: no update but speculative ones is made before the norm is known.
  bool update_after_norm = true;
  /// The planner uses all settings but those of the trace: micro-batch order, recomputation and
  /// placement of activations. With clipping or fp16, all updates on the host are deferred unless
  /// they wait, and no weights that the host updates are resident. In an evaluation, resident
  /// weights stay all the time, also until the next one; other settings have no effect. A schedule
  /// that is given replaces these defaults.
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
  uint32_t num_blocks = 0;  ///< 0 in an initialise, warm-up or flush plan
  /// [parameter chunk] what the plan decides about it. An initialise, warm-up or flush plan has the
  /// records of its step, with blocks of its own.
  std::vector<ChunkRecord> chunks = {};
  uint32_t gradient_buffers = 0;  ///< 0 in these three plans
  Division division = {};         ///< as in PlanOptions
  uint32_t sum_slots = 0;         ///< for complete gradient sums of groups
  std::vector<uint32_t> stored_sums =
      {};  ///< chunks of gradient sums that leave the device between uses, ascending
  std::vector<uint32_t> stored_activations = {};  ///< arena chunks that leave while idle, ascending
  size_t loaded_bytes = 0;                        ///< of chunks
  size_t stored_bytes = 0;   ///< of stores; not of partial norms, shares and AddGroups
  uint32_t fetch_slots = 0;  ///< of the home, for weights of other machines
  size_t fetched_bytes = 0;  ///< of chunks
  uint32_t peak_blocks = 0;  ///< the most blocks in use at once

  /// The number of chunks of which this is true, for example count(&ChunkRecord::is_deferred).
  uint32_t count(bool (ChunkRecord::*is)() const) const;
  /// These chunks, ascending.
  std::vector<ChunkIndex> chunks_that(bool (ChunkRecord::*are)() const) const;
  /// The chunks that have a block when the plan begins (&ChunkRecord::first_block), or when it ends
  /// (&ChunkRecord::last_block), by block.
  std::vector<ChunkIndex> chunks_by(BlockIndex ChunkRecord::*block) const;

  std::span<const OpIndex> waits_of(const Op& op) const {
    return std::span(waits).subspan(op.first_wait, op.num_waits);
  }
};

/// Throws PlanError where options.num_blocks < smallest_need(...).num_blocks.
Plan make_plan(const Trace& trace, const Layout& layout, const PlanOptions& options);
/// The same, if the caller has make_chunk_trace(trace, layout, options.update) already.
Plan make_plan(const ChunkTrace& chunk_trace, const Trace& trace, const Layout& layout,
               const PlanOptions& options);

/// Returns the plan that allocates blocks for the chunks that are updated on the device. REQUIRES:
/// no chunk is on the device when it runs.
Plan make_initialise_plan(const Plan& plan);
/// Returns the plan that loads the resident weights that a step expects. It runs after the
/// initialise plan.
Plan make_warm_up_plan(const Plan& plan, const Layout& layout);
/// Returns the plan that makes the deferred updates of the last step and drops the resident weights
/// whose planes are in host memory.
Plan make_flush_plan(const Plan& plan);

/// The blocks that are needed at the same time for the largest item of the trace, by space: what it
/// uses, and all activations that exist and are not idle. No plan works with fewer.
struct BlockNeed {
  uint32_t num_blocks = 0;
  uint32_t by_space[kNumSpaces] = {};
  /// The name of its call, which belongs to the trace, or "round a gradient".
  std::string_view call;
};
BlockNeed smallest_need(const Trace& trace, const Layout& layout, bool update);
BlockNeed smallest_need(const ChunkTrace& chunk_trace, const Trace& trace);
/// With so many blocks no chunk is evicted before its last use, if the device updates no chunk.
/// Reads only options.update.
uint32_t full_num_blocks(const Trace& trace, const Layout& layout, const PlanOptions& options);

/// Blocks that a chunk occupies during the whole step if the device updates it: one for its
/// weights, and those of its gradient if that waits for the norm.
uint32_t blocks_of_device_update(const Layout& layout, bool after_norm);

/// The parameter chunks that get gradients, in the order in which their gradients are rounded.
std::vector<ChunkIndex> round_order(const ChunkTrace& chunk_trace);
std::vector<ChunkIndex> round_order(const Trace& trace, const Layout& layout);

std::string to_string(const Plan& plan, const Trace& trace);

}  // namespace ebb
