// The state of the chunks that devices update. The host reads and writes it through copies of a few
// MiB, which pass through one bounce buffer.
//
// - Tier::Device, with one rank: the weights stay in their blocks. This class allocates the planes
//   that loads and stores do not copy (PlaneInfo::is_copied).
// - Tier::Peer: this class allocates all planes of the chunks that this rank owns, and memory for
//   their finished gradients. Other ranks only read (scheduler/run/shared_device_memory.h).
//
// The coefficients of an update are in pinned memory, which the update reads when it runs. So an
// update can be submitted before the norm is known.
//
// Thread-safety: any thread may call visit_copies() for a chunk that no update is changing; the
// calls run one after the other. Any thread may call the other const functions, except
// submit_update(). The update thread calls skip(), decide() with `after_norm`, and submit_update()
// for Tier::Peer. The program thread calls the rest. While no step runs, it may call all functions.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "comm/ranks.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"
#include "device/planes.h"
#include "scheduler/run/shared_device_memory.h"

namespace ebb {

class DeviceState {
 public:
  /// `chunks`: what the plan decides about each parameter chunk. `weights`: the address of the
  /// weight of element 0 on the device. `ranks`: null if there is one rank. Collective if a chunk
  /// is of Tier::Peer. Throws OutOfMemory.
  DeviceState(Device& device, const Layout& layout, std::span<const ChunkRecord> chunks,
              std::byte* weights, Ranks* ranks);

  /// No device has state of a chunk.
  bool is_empty() const { return is_empty_; }
  /// The state of the chunk is on this device, or on that of its owner.
  bool has(ChunkIndex chunk) const { return memory_of_[chunk] != nullptr; }
  /// All planes of a chunk, on the device; the gradient is null. Only the owner may write them.
  /// REQUIRES: has(chunk).
  Planes planes(ChunkIndex chunk) const;
  /// The memory for the finished gradient of a chunk of Tier::Peer. REQUIRES: this rank owns it.
  std::byte* gradient(ChunkIndex chunk) const;
  /// The chunks of Tier::Peer that this rank owns: all their planes and gradients.
  std::span<std::byte> owned() const;

  /// Copies elements [first, first + count) of the planes `asked` to the host, part by part, and
  /// calls visit(first, count, copies) for each part, while the next part is copied. Here `first`
  /// always counts from the first element of the chunk. copies[i] is the address of element `first`
  /// of plane i, or null if this plane was not asked for. With `changed`, the copies are written
  /// back to the device after each call. Blocks until all copies are complete. REQUIRES:
  /// has(chunk); the chunk's block is mapped, if the weights are in one; `first` is the first
  /// element of a group of every plane; visit() does not call visit_copies(). If visit() throws,
  /// its part is not written back; earlier parts are.
  using VisitCopies = std::function<void(uint64_t first, uint64_t count, const Planes& copies)>;
  void visit_copies(ChunkIndex chunk, uint64_t first, uint64_t count, PlaneSet asked, bool changed,
                    const VisitCopies& visit) const;

  /// Registers the ranges that the updates of a chunk change; their elements count from the first
  /// element of the chunk. Must be called for each chunk, in order, before the first update. Throws
  /// LogicError if the ranges of all chunks together have more than kMaxFactors different pairs of
  /// factors (scheduler/search/memory_sizes.h).
  void expect(std::span<const AdamWRange> ranges);
  /// Computes the coefficients of the updates that run after the norm is known, if `after_norm` is
  /// true, or else of the updates that run before. `step` has the values of the current step.
  /// REQUIRES: none of these updates is running.
  void decide(const AdamWStep& step, bool after_norm);
  /// Called if the norm is infinite or NaN. The updates that run after the norm then change
  /// nothing.
  void skip();
  /// Submits the update of a chunk, whose gradient is at this address on the device. `fetched`: as
  /// in AdamWUpdate. REQUIRES: has(chunk), and this rank owns the chunk; expect() was called for
  /// all chunks; the update runs after decide() or skip() of its step.
  void submit_update(Stream& stream, Kernels& kernels, ChunkIndex chunk, const std::byte* gradient,
                     bool after_norm, AdamWCoefficients* fetched = nullptr) const;

 private:
  struct Factors {
    double decay_factor;
    double learning_rate_factor;
  };
  uint32_t index_of(const AdamWRange& range);
  std::span<AdamWCoefficients> coefficients(bool after_norm) const;
  Planes planes_in(std::byte* memory, uint64_t num_elements, PlaneSet which) const;

  const Layout& layout_;
  bool is_empty_ = true;
  PlaneSet stored_;                    // the planes that this class allocates
  std::vector<std::byte*> memory_of_;  // [parameter chunk] where they are, or null
  std::byte* weights_;
  Buffer planes_;                             // Tier::Device
  std::optional<SharedDeviceMemory> shared_;  // Tier::Peer
  size_t owned_bytes_ = 0;
  std::vector<Factors> factors_;        // each pair once
  std::vector<UpdateRange> ranges_;     // of all chunks; UpdateRange::which is an index of factors_
  std::vector<size_t> first_range_{0};  // of each chunk that is expected, and one past the last
  Buffer coefficients_;  // pinned; of updates before the norm, then of updates after it
  Buffer bounce_buffer_;
  mutable std::mutex bounce_mutex_;
  std::unique_ptr<Event> fetched_;  // the copies of a part are on the host
  std::unique_ptr<Stream> copies_;
};

}  // namespace ebb
