// The work on gradients and on the training state. The executor calls it in the order of the plan.
//
// The copy thread calls load_part() and gather(). The program thread calls update_cost() and all
// other functions that submit. The thread of the update stream runs norm(), update(), speculate(),
// add_groups() and round_total(). send() and receive() run on the threads of the streams of their
// operations, fetch() on that of the fetch stream.
//
// Inference has no such work and uses this class as it is: each function throws LogicError, except
// stopped(), which does nothing.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "chunk/index.h"
#include "device/stream.h"
#include "scheduler/plan/plan.h"

namespace ebb {

class ChunkWork {
 public:
  virtual ~ChunkWork() = default;
  /// Submits the rounding of a parameter chunk's gradient and its partial norms to the compute
  /// stream.
  virtual void submit_round(Stream& compute, ChunkIndex chunk);
  /// Submits the copy of the chunk's partial norms to host memory. Called once for each gradient
  /// that submit_round() made, also if it stays on the device.
  virtual void submit_partial_norms(Stream& store, ChunkIndex chunk);
  /// Waits until no reader has locked the chunk's state, and submits the chunk's device update.
  virtual void submit_update(Stream& compute, ChunkIndex chunk);
  /// Adds up the partial norms, and computes the clip scale. If the norm is not finite, undoes all
  /// speculative updates; then the step is skipped, or this throws.
  virtual void norm();
  /// Waits until no reader has locked the chunk's state, and updates the chunk on the host, or on
  /// the device of this rank if it is there (ChunkRecord::is_on_owner); then it waits for the
  /// device. `deferred`: the update belongs to the step before this one, and uses its learning rate
  /// and clip scale.
  virtual void update(ChunkIndex chunk, BufferIndex gradient_buffer, bool deferred);
  /// Makes a speculative update of the chunk if it is likely to be committed. The later update() of
  /// the chunk does only what is still missing. `late`: all partial norms of the step are in
  /// host memory, so that the norm can be computed now.
  virtual void speculate(ChunkIndex chunk, BufferIndex gradient_buffer, bool late);
  /// Submits the load of this rank's part of a split load (is_load_part()). `weights`: in host
  /// memory, those of the chunk, or in a fetch slot only the part; null if they are on the device
  /// of their owner.
  virtual void load_part(Stream& load, const Op& op, const std::byte* weights);
  /// Submits the copy of weights from devices of this machine to their block, at `to`
  /// (is_gather()).
  virtual void gather(Stream& load, const Op& op, std::byte* to);
  /// Submits the store or the share (is_share()) of the complete gradient sums of a group, fp32 at
  /// `sums`, to their slot. They get the type Division::sum_type.
  virtual void submit_sums(Stream& store, const Op& op, std::span<const std::byte> sums);
  /// Adds the sums of all groups for a parameter chunk, and rounds them to its finished gradient;
  /// or with a running sum in op.slot, adds those of this machine to it.
  virtual void add_groups(const Op& op);
  /// Rounds the running sum of all groups to the finished gradient of a chunk.
  virtual void round_total(const Op& op);
  // Messages to and from other ranks, and the weights and running sums of other machines.
  virtual void send(const Op& op);
  virtual void receive(const Op& op);
  virtual void fetch(const Op& op);
  /// The plan threw this error, and no other plan can run. Called before the executor waits for
  /// submitted work, which may wait for other ranks.
  virtual void stopped(std::string_view /*error*/) noexcept {}
  /// The cost of one update of a chunk on the host.
  virtual Cost update_cost(ChunkIndex chunk) const;
};

}  // namespace ebb
