// Executes a plan: hooks on one side, streams and blocks on the other.
//
// The program thread runs model code; at every moment it submits what the plan puts before it,
// makes the compute stream wait for the loads it names, and hands out leases. A mover thread gives
// blocks to what is loaded, in plan order: it maps a block at the chunk's address and submits the
// load, behind the block's last user, or the store behind that, and what made the chunk's content
// at home. What is only given a block the program gives it. For blocks that keep their addresses
// streams wait, and a thread only where another block lay at the chunk's address, for the chunk's
// last stay; where blocks move, the thread that moves one waits for all of it. Work that touches a
// chunk is submitted only after its block is mapped. What a finished gradient or an update means is
// the owner's (ChunkWork).
//
// One program thread at a time. A step that throws leaves the executor unusable; destroying it is
// then still safe.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "autograd/hooks.h"
#include "chunk/chunk_table.h"
#include "chunk/home.h"
#include "chunk/layout.h"
#include "device/device.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"
#include "scheduler/plan/trace.h"
#include "scheduler/run/last_gradient.h"
#include "scheduler/run/progress.h"

namespace ebb {

/// The device's share of the spaces: blocks, and an address range for each space.
class DeviceSpaces {
 public:
  DeviceSpaces(Device& device, const Layout& layout, uint32_t num_blocks, size_t arena_bytes);
  Blocks& blocks() { return *blocks_; }
  std::byte* base(Space space) const { return base_[static_cast<int>(space)]; }
  std::byte* address(ChunkId id) const {
    return base(id.space) + id.index * blocks_->block_bytes();
  }
  uint32_t num_arena_chunks() const { return num_arena_chunks_; }

 private:
  uint32_t num_arena_chunks_ = 0;
  std::unique_ptr<Blocks> blocks_;
  std::array<std::byte*, kNumSpaces> base_{};
};

/// What the executor does not know: called in the order of the plan.
class ChunkWork {
 public:
  virtual ~ChunkWork() = default;
  /// Submits the rounding of a parameter chunk's gradient and its partial norms to the compute
  /// stream.
  virtual void submit_round(Stream& compute, uint32_t chunk) = 0;
  /// Submits the copy of the chunk's partial norms home.
  virtual void submit_partial_norms(Stream& store, uint32_t chunk) = 0;
  /// Submits the update of a chunk that lives on the device, once nobody has that on loan.
  virtual void submit_update(Stream& compute, uint32_t chunk) = 0;
  /// Runs on the thread of the update stream, as the next two.
  virtual void norm() = 0;
  /// `carried`: for the step before this one.
  virtual void update(uint32_t chunk, uint32_t gradient_buffer, bool deferred) = 0;
  /// In the hope that the norm will allow it: update() then knows. `late`: the norm can be known
  /// already.
  virtual void speculate(uint32_t chunk, uint32_t gradient_buffer, bool late) = 0;
  virtual Cost update_cost(uint32_t chunk) const = 0;
};

struct ExecutorStats {
  double total_s = 0;
  double compute_s = 0;  ///< kernels running
  double stall_s = 0;    ///< compute idle between begin() and its last operation
  double update_s = 0;
  double overlap_s = 0;  ///< both at once
};

class Executor : public Hooks {
 public:
  Executor(Device& device, const Layout& layout, DeviceSpaces& spaces, const Home& home,
           ChunkWork& work, uint32_t max_ops);
  ~Executor() override;

  Stream& compute() { return *streams_[static_cast<int>(StreamKind::Compute)]; }
  Stream& store() { return *streams_[static_cast<int>(StreamKind::Store)]; }
  /// Before begin() only: then it is the mover's.
  Stream& load() { return *streams_[static_cast<int>(StreamKind::Load)]; }

  /// Starts a plan. Both must live until finish() has returned, and no other plan may come to its
  /// address: in a plan's first run kernels are new, so it waits in place
  /// (Device::block_submitting_thread), and where it is told to. REQUIRES: the device holds what
  /// the plan starts with.
  void begin(const Trace& trace, const Plan& plan, bool blocks_submitting_thread = false);
  /// Submits what is left, waits for everything and rethrows the first error.
  ExecutorStats finish();
  /// After a throw: waits until nothing runs any more. Nothing can be begun again. What kernels
  /// found wrong with their data: whatever was thrown may have come of it.
  std::exception_ptr cancel() noexcept;
  /// When the operations of the plan that was finished last ran; until the next begins.
  std::span<const OpTime> times() const { return std::span(times_).first(num_times_); }

  /// Weights on the device between plans.
  uint32_t resident_chunks() const { return table_.num_present(); }

  void begin_call(std::string_view name, Phase phase, std::span<const ParameterUse> uses) override;
  Tensor weight(const ParameterUse& use) override;
  GradientTarget gradient(const ParameterUse& use) override;
  void end_call() override;

 private:
  Stream& stream(StreamKind stream) { return *streams_[static_cast<int>(stream)]; }
  void find_residents(std::span<const ResidentChunk> resident);
  void read_times();
  void submit_until_call();
  void submit(uint32_t index);
  void allocate(uint32_t index);
  void submit_store(const Op& op);
  std::byte* home_of(ChunkId id) const;
  void wait_for_all(std::span<const uint32_t> waits, Stream& stream);
  void lease_chunks(std::span<const ParameterUse> uses);
  void lease_activations(const Op& run);
  void lease_loaded(const Op& finish);

  template <class Function>
  void for_each_timed(std::span<const uint32_t> waits, Function function) const;
  void drop_or_map(uint32_t index, Stream& user);

  void run_copy_thread();
  void move(uint32_t index);
  void wait_mapped(uint32_t count);
  void stop_copy_thread() noexcept;

  Device& device_;
  const Layout& layout_;
  DeviceSpaces& spaces_;
  const Home& home_;
  ChunkWork& work_;
  ChunkTable table_;
  std::vector<std::unique_ptr<Event>> events_;  // one for each operation
  std::vector<OpTime> times_;
  size_t num_times_ = 0;
  std::vector<Lease> leases_;

  const Trace* trace_ = nullptr;
  const Plan* plan_ = nullptr;
  std::vector<const Plan*> begun_;  // each once
  std::vector<uint32_t> block_of_;  // [the plan's block] the device's: each plan numbers anew
  std::array<std::vector<uint32_t>, kNumSpaces> last_drop_;  // [chunk] in this run of the plan
  uint32_t cursor_ = 0;  // next operation the program thread looks at
  uint32_t call_ = 0;
  uint32_t last_compute_op_ = kNone;
  LastGradient last_gradient_;
  bool running_ = false;  // between begin() and the end of finish()
  double begin_s_ = 0;
  std::array<StreamStats, kNumStreamKinds> begin_stats_{};

  // Between the program thread and the mover: how many of the plan's operations, in their order,
  // are submitted, and how many moved. What is of the other lane counts as soon as it is passed.
  Progress submitted_, mapped_;
  std::exception_ptr copy_error_;  // set before mapped_ is given up
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t generation_ = 0;  // plans begun
  std::atomic<bool> stop_ = false;

  std::array<std::unique_ptr<Stream>, kNumStreamKinds> streams_;
  std::thread copy_thread_;
};

}  // namespace ebb
