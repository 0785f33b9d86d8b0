// The operations of a plan, and the copies between tiers that exist. Plain values and pure
// functions.
//
// An operation runs on one of eight streams. Operations of one stream run in the order of the plan;
// an operation also waits for the events of the operations that it names. Drops and allocations
// take no time and have no event. The later operations of their stream wait for what they name. An
// operation of another stream that names one of them waits for what that one names.
#pragma once

#include <cstdint>
#include <string_view>

#include "chunk/index.h"
#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "device/planes.h"
#include "device/stream.h"
#include "scheduler/plan/groups.h"
#include "scheduler/plan/message.h"
#include "scheduler/plan/trace.h"

namespace ebb {

using OpIndex = Index<struct OpTag>;  ///< in Plan::ops

enum class OpKind : uint8_t {
  Call,  ///< the kernels of a call
  /// Add up the gradient sums of all uses of a parameter chunk, round them to its finished gradient
  /// (in the space of gradients), and make its partial norms. It comes after the last call that
  /// adds to these sums or reads weights of the chunk, so an update may follow at once.
  Round,
  /// The optimizer's step on a parameter chunk: on the compute stream for a chunk of Tier::Device.
  /// Otherwise the update thread makes it on the host, or, for a chunk of Tier::Peer, submits it to
  /// the device and waits. After a Speculate: keep its update, or undo it and make it with the clip
  /// scale, or make it if the Speculate did nothing.
  Update,
  /// An update on the host before the norm is known, which can be undone. It may do nothing.
  Speculate,
  /// Copy to the host the partial norms of a chunk of Tier::Device. (The store of a gradient copies
  /// its partial norms as well, and AddGroups makes those of its chunk.)
  StorePartialNorms,
  /// Add up the partial norms and compute the clip scale. If the norm is not finite, the step is
  /// skipped: undo all speculative updates. (Without clipping and fp16 no step is skipped: the run
  /// ends with a NumericError.) A Norm names only the last store of a gradient or of partial norms,
  /// because the others come before that one on the store stream; with groups, it names the last
  /// AddGroups or RoundTotal. With several ranks it also names the Receive of the norms.
  Norm,
  /// Add the stored sums of all groups for a parameter chunk of this rank, and make its partial
  /// norms. The sum is rounded to the finished gradient, in a gradient buffer, or on the device if
  /// the device updates the chunk. It takes the place of Round.
  /// If sums are chained, it adds those of the groups of this machine to the running sum in a slot,
  /// for each chunk that this rank adds (adder_of()), and makes no norms.
  AddGroups,
  /// Copy the running sum of a parameter chunk from the rank Op::sender of another machine.
  FetchSum,
  /// Round the running sum of all groups to the finished gradient of a parameter chunk of this
  /// rank, and make its partial norms.
  RoundTotal,
  Send,     ///< tell the other ranks that something is done (Op::message)
  Receive,  ///< wait until the other ranks have told this one (Op::message)
  Move,     ///< copy a chunk from one tier to another; from None: allocate, copy nothing
  /// Forget the copy of a chunk on the device. The plan has it immediately before the move that
  /// takes the block, on the stream of that move; until then the chunk stays on the device. The
  /// drops that empty the device at the end of a plan are on the load stream and have no move.
  Drop,
};
std::string_view name_of(OpKind kind);

struct Op {
  OpKind kind = OpKind::Call;
  StreamKind stream = StreamKind::Compute;
  Tier from = Tier::None;  ///< Move
  Tier to = Tier::None;    ///< Move
  /// Move of a parameter chunk: the plane, an index of state_planes(). Only kWeightPlane works:
  /// executor and simulator take sizes and addresses from the type of the weights, and the
  /// validator refuses others. Chunks of other spaces have one plane.
  uint8_t plane = kWeightPlane;
  /// Move, Drop: any chunk; others: the parameter chunk (Space::Weights). No meaning for calls and
  /// norms.
  ChunkId chunk = {};
  CallIndex call = kNone;    ///< Call
  BlockIndex block = kNone;  ///< Move to the device, and Drop
  /// Move of a gradient to the host; RoundTotal, Speculate, Update on the host, and AddGroups
  /// without a running sum. kNone: the gradient is on the device, or the operation has none.
  BufferIndex gradient_buffer = kNone;
  /// With several groups or ranks: where complete gradient sums are stored, or weights of another
  /// machine wait for their load (message.h). AddGroups, FetchSum, RoundTotal: where a running sum
  /// is (running_sums.h); kNone if sums are not chained.
  BufferIndex slot = kNone;
  /// The number of a split load in the plan (split_loads.h): load part, its fetch, the gather of
  /// the parts, and their messages. kNone: the operation belongs to no split load.
  uint32_t split = kNone;
  Message message = Message::Weights;  ///< Send, Receive
  /// Receive: the rank whose message it waits for; kNone if several ranks send it: Sums,
  /// PartLoaded, Gathered and Norms. FetchSum, fetch: the rank from which it copies.
  uint32_t sender = kNone;
  /// Update: it belongs to the step before this one. Send, Receive of weights: after that update.
  bool deferred = false;
  uint32_t first_wait = 0;  ///< in Plan::waits; they name earlier operations
  uint32_t num_waits = 0;
};

/// Does it copy weights from the memory of another machine to a fetch slot, or to the copy of this
/// machine?
inline bool is_fetch(const Op& op) {
  return op.kind == OpKind::Move && op.from == Tier::Peer && op.to == Tier::Host;
}
/// Does it copy weights from devices to a block? They come from the device of their owner, or for a
/// split load from the part slots of all ranks of this machine. It counts as a load.
inline bool is_gather(const Op& op) {
  return op.kind == OpKind::Move && op.from == Tier::Peer && op.to == Tier::Device;
}
/// Is the operation a load, a gather or a store? These count as loaded or stored bytes.
inline bool is_copy(const Op& op) {
  return op.kind == OpKind::Move && op.from != Tier::None && !is_fetch(op) && op.to != Tier::Peer;
}
/// Does a Receive without a sender wait only for ranks of this machine?
inline bool is_from_machine(const Op& receive, const Division& division) {
  return receive.split != kNone || (receive.message == Message::Sums && division.chains_sums);
}
/// Does the copy thread submit the operation? The program thread submits all others.
inline bool is_of_copy_thread(const Op& op) {
  return op.stream == StreamKind::Load || op.stream == StreamKind::Parts;
}
/// Does it copy complete gradient sums to memory of this device that the devices of other ranks can
/// read?
inline bool is_share(const Op& op) {
  return op.kind == OpKind::Move && op.from == Tier::Device && op.to == Tier::Peer;
}
/// Does it copy this rank's part of weights to a part slot (split_loads.h)?
inline bool is_load_part(const Op& op) {
  return op.kind == OpKind::Move && op.from != Tier::Device && op.to == Tier::Peer;
}
/// Does it copy the complete gradient sums of a group to a sum slot, by a store or a share? They
/// get the type Division::sum_type.
inline bool stores_sums(const Op& op) {
  return op.kind == OpKind::Move && op.chunk.space == Space::GradientSums && op.slot != kNone;
}

/// What a Move between two tiers is called, and the stream on which it runs.
struct MoveInfo {
  Tier from;
  Tier to;
  std::string_view name;
  StreamKind stream;
};
/// All moves that exist. For a further tier, add rows, and decide in is_copy() whether they count.
/// If planes are stored there, check each use of the functions of ChunkRecord that read its tier,
/// and each test of Op::from and Op::to. They are in chunk/home.cpp, scheduler/ and tools/.
inline constexpr MoveInfo kMoves[] = {
    {Tier::None, Tier::Device, "allocate", StreamKind::Compute},
    {Tier::Host, Tier::Device, "load", StreamKind::Load},
    {Tier::Device, Tier::Host, "store", StreamKind::Store},
    {Tier::Peer, Tier::Host, "fetch", StreamKind::Fetch},
    {Tier::Peer, Tier::Device, "gather", StreamKind::Load},
    {Tier::Device, Tier::Peer, "share", StreamKind::Store},
    {Tier::Host, Tier::Peer, "load part", StreamKind::Load},
    {Tier::Peer, Tier::Peer, "load part", StreamKind::Load},
};
/// The row of a move; null if the move does not exist.
const MoveInfo* find_move(Tier from, Tier to);
/// A Move of the chunk on its stream. Throws LogicError if the move does not exist.
Op make_move(ChunkId chunk, Tier from, Tier to, BlockIndex block = kNone);
/// A fetch of weights from the memory of their owner, the rank `from_rank`.
Op make_fetch(ChunkId chunk, uint32_t from_rank);
/// The name of a move ("load"), or the name of the kind.
std::string_view name_of(const Op& op);

}  // namespace ebb
