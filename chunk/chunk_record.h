// What a plan decides about one parameter chunk: where its state is stored, when and how it is
// updated, where its finished gradient waits, and whether its weights stay on the device between
// steps. Plain values. scheduler/plan/decide_chunks.h assigns all members but the blocks, which
// scheduler/plan/residency.h assigns.
#pragma once

#include <cstdint>

#include "chunk/index.h"
#include "chunk/ledger.h"

namespace ebb {

/// When the update of a chunk runs.
enum class UpdateTime : uint8_t {
  Never,  ///< the step computes no gradient of the chunk
  /// With neither clipping nor fp16: as soon as its gradient is finished.
  Early,
  AfterNorm,  ///< later in the same step, when the norm is known
  /// During the forward of the next step, or in a flush plan. The update thread of the owner makes
  /// the update, on the host or on the device.
  Deferred,
  /// If clipping will probably not change the update, the host makes it before the norm is known.
  /// During the forward of the next step, or in a flush plan, it is kept, or it is undone and made
  /// with the clip scale.
  /// If it was not made, it is made then.
  Speculative,
  /// During the whole next step, or in a flush plan. The host writes the new weights to a second
  /// copy (chunk/home.h), so the next step still computes with the old ones. Changes the results
  /// (TrainerOptions::delayed_updates).
  Delayed,
};

struct ChunkRecord {
  /// The rank that stores the planes of the chunk and updates it, and whether it is this rank. The
  /// other ranks get the weights from its memory, and it adds their gradient sums.
  uint32_t owner = 0;
  bool is_mine = true;
  /// That rank is on the same machine. If not, the weights are copied to this machine before each
  /// load, or once in each step.
  bool is_near = true;
  /// That rank is on another machine, and in each step one rank of this machine
  /// (RankPlace::fetcher_of) fetches the weights to a copy. All ranks of this machine load from it,
  /// except after an early update in the same step: then each rank fetches the new weights to a
  /// fetch slot.
  bool is_copied = false;
  /// Where all planes of the chunk are stored, and so who updates it:
  /// - Host: the host of the owner.
  /// - Device: the device of the only rank. The chunk is also resident.
  /// - Peer: the device of the owner, which may be this rank, in memory that the devices of all
  ///   ranks can read. The weights are copied from there to a block before a call uses them. Only
  ///   with Division::sums_on_devices.
  Tier tier = Tier::Host;
  UpdateTime update = UpdateTime::Never;
  /// The gradient buffer in which the finished gradient waits for an update on the host; kNone if
  /// a device or another rank updates the chunk, or nothing does.
  BufferIndex gradient_buffer = kNone;
  /// The weights are on the device when a step begins and when it ends. Unless the planes are of
  /// Tier::Device, the new weights are loaded again after the update.
  bool is_resident = false;
  /// The gradient sums keep their blocks from their first use to their last. Only for chunks that
  /// the host updates. The sums of other chunks may be stored between their uses.
  bool keeps_sums = false;
  /// The blocks of the resident weights when the plan begins and when it ends; kNone if the weights
  /// have no block then. In the plan of a step both are set or neither; they may be different.
  BlockIndex first_block = kNone, last_block = kNone;

  bool is_trained() const { return update != UpdateTime::Never; }
  /// The planes are on the device of the only rank. False for resident weights whose planes are in
  /// host memory.
  bool is_on_device() const { return tier == Tier::Device; }
  /// The planes are on the device of the owner, in memory that all devices can read.
  bool is_on_owner() const { return tier == Tier::Peer; }
  /// The planes are in the memory of the device of this rank.
  bool has_device_state() const { return is_on_device() || (is_on_owner() && is_mine); }
  /// The planes are in the host memory of this rank, so its host makes the update.
  bool is_at_home() const { return is_mine && tier == Tier::Host; }
  /// If the chunk is trained, the update thread of this rank makes its update, on the host or on
  /// the device. False for an update on the compute stream.
  bool is_updated_by_update_thread() const { return is_mine && !is_on_device(); }
  /// The update is deferred, speculative or delayed: the next step or a flush plan makes it, or
  /// completes it. Also true if another rank updates the chunk.
  bool is_deferred() const {
    return update == UpdateTime::Deferred || update == UpdateTime::Speculative || is_delayed();
  }
  bool is_delayed() const { return update == UpdateTime::Delayed; }
  bool has_kept_sums() const { return keeps_sums; }
  bool is_speculative() const { return update == UpdateTime::Speculative; }
  /// is_deferred(), and this rank makes the update.
  bool defers_update() const { return is_mine && is_deferred(); }
  bool has_undo_log() const { return is_mine && is_speculative(); }
  bool begins_on_device() const { return first_block != kNone; }
  bool ends_on_device() const { return last_block != kNone; }
};

}  // namespace ebb
