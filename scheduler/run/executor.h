// Executes a plan: it turns the calls of the model's code and the operations of a plan into work on
// streams, and it maps blocks at the addresses of chunks.
//
// Two threads submit work. The program thread runs the model's code. At the begin of a plan and at
// the end of each call it submits the operations that the plan lists before the next call, except
// those of the load and the parts stream. Before a call, and before another operation that names
// loads, it waits until the copy thread has submitted these loads. It makes the stream of the
// operation wait for them. While a call is submitted, the drop of a chunk that it uses would throw
// LogicError. The copy thread executes the operations of these two streams in the plan's order.
// Before each it waits until the program thread has submitted all operations that it names; the
// operations behind it wait, too. For each load to a block, also a gather, it maps the block at the
// chunk's address, then submits the copy. The load of a part and a message map nothing. Chunks that
// are allocated without a copy are mapped by the program thread. Work that uses a chunk is
// submitted after the chunk's block is mapped.
//
// A block is used for another chunk only after the last work on it and the last store from it. A
// load also comes after the store or the update that made the chunk's content in host memory. If
// blocks keep their addresses until another block is mapped there (Blocks::keep_addresses), the
// block is mapped at once, and streams wait for that work. The thread that maps waits only if the
// chunk was dropped earlier in this plan and the block is not at its address yet: it waits for the
// work that this drop names. If blocks do not keep their addresses, the thread waits for all that
// the operation names before it maps the block.
//
// ChunkWork rounds gradients and makes updates; in training it is the Optimizer.
//
// Thread-safety: one program thread at a time. After a function has thrown, the executor cannot
// run any plan; cancel() and the destructor are still allowed.
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
#include "comm/ranks.h"
#include "device/device.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/timeline.h"
#include "scheduler/plan/trace.h"
#include "scheduler/run/chunk_work.h"
#include "scheduler/run/last_gradient.h"
#include "scheduler/run/progress.h"

namespace ebb {

/// The blocks of a device, and the range of device addresses of each space.
class DeviceSpaces {
 public:
  DeviceSpaces(Device& device, const Layout& layout, uint32_t num_blocks, size_t arena_bytes);
  Blocks& blocks() { return *blocks_; }
  std::byte* base(Space space) const { return base_[static_cast<int>(space)]; }
  /// Where the chunk is while a block is mapped at its address.
  std::byte* address(ChunkId id) const {
    return base(id.space) + id.index * blocks_->block_bytes();
  }
  uint32_t num_arena_chunks() const { return num_arena_chunks_; }

 private:
  uint32_t num_arena_chunks_ = 0;
  std::unique_ptr<Blocks> blocks_;
  std::array<std::byte*, kNumSpaces> base_{};
};

struct ExecutorStats {
  double total_s = 0;    ///< from begin() to the end of finish()
  double compute_s = 0;  ///< kernels are running
  double stall_s = 0;    ///< the compute stream does nothing between begin() and its last operation
  double update_s = 0;   ///< the update thread works, or waits for a GPU that adds or updates
  double overlap_s = 0;  ///< both are true
};

class Executor : public Hooks {
 public:
  /// The kernels of calls run on `compute`. The executor creates the other streams; those for
  /// other ranks and machines only with `ranks`, which may be null. `max_ops`: the most operations
  /// of a plan.
  Executor(Device& device, Stream& compute, const Layout& layout, DeviceSpaces& spaces,
           const Home& home, ChunkWork& work, uint32_t max_ops, Ranks* ranks = nullptr);
  ~Executor() override;

  Stream& store() { return stream(StreamKind::Store); }
  /// REQUIRES: no plan is running. During a plan only the copy thread uses this stream.
  Stream& load() { return stream(StreamKind::Load); }

  /// Starts a plan. `trace` and `plan` must live until finish() has returned. The executor
  /// recognises a plan by its address, so no other plan may later have this address. In the first
  /// run of a plan, the device may load new kernels. In that run a thread that makes a GPU stream
  /// wait for work on the host, such as an update, waits itself (Device::block_submitting_thread);
  /// in later runs the stream waits. `blocks_submitting_thread` requests the same for this run.
  /// REQUIRES: the chunks that begin on the device are on it, and no others; no plan is running.
  void begin(const Trace& trace, const Plan& plan, bool blocks_submitting_thread = false);
  /// Waits until all operations of the plan are done. Rethrows an error of the copy thread or of a
  /// stream. REQUIRES: all calls of the trace have been made.
  ExecutorStats finish();
  /// To be called after a throw: stops the copy thread and waits until all submitted work is done.
  /// No plan can begin after that. Returns the error that a kernel found in its data, or null: such
  /// an error may be the cause of the error that was thrown.
  std::exception_ptr cancel() noexcept;
  /// The times of the operations of the plan that finished last. Valid until the next begin().
  std::span<const OpTime> times() const { return std::span(times_).first(num_times_); }

  /// The number of chunks on the device. Between plans these are chunks of weights.
  uint32_t num_chunks_on_device() const { return table_.num_present(); }

  /// Throw LogicError if the calls are not those of the trace, in its order. Tensors of weights and
  /// gradients are on the device; their chunks are there until end_call().
  void begin_call(std::string_view name, Phase phase, std::span<const ParameterUse> uses) override;
  Tensor weight(const ParameterUse& use) override;
  GradientTarget gradient(const ParameterUse& use) override;
  void end_call() override;

 private:
  Stream& compute() { return stream(StreamKind::Compute); }
  Stream& stream(StreamKind stream) { return *streams_[static_cast<int>(stream)]; }
  void find_residents(const Plan& plan);
  void read_times();
  void submit_until_call();
  void submit(OpIndex index);
  void allocate(OpIndex index);
  void submit_move(const Op& op);
  void submit_fetch(const Op& op);
  void submit_message(const Op& op);
  void run_on_update_thread(const Op& op);
  void submit_store(const Op& op);
  std::byte* host_address(const Op& op) const;
  void wait_for_all(std::span<const OpIndex> waits, Stream& stream);
  void lease_chunks(std::span<const ParameterUse> uses);
  void lease_activations(const Op& run);
  void lease_loaded(const Op& round);

  /// Calls function(w) for each operation of `waits`. Allocations and drops have no event, so
  /// function is called for the operations that they wait for instead.
  template <class Function>
  void for_each_timed(std::span<const OpIndex> waits, Function function) const {
    for (const OpIndex w : waits) {
      if (takes_no_time(plan_->ops[w])) {
        for_each_timed(plan_->waits_of(plan_->ops[w]), function);
      } else {
        function(w);
      }
    }
  }
  void drop_or_map(OpIndex index, Stream& user);

  void run_copy_thread();
  void submit_from_copy_thread(OpIndex index);
  void submit_of_split_load(OpIndex index);
  void wait_mapped(uint32_t count);
  void stop_copy_thread() noexcept;

  Device& device_;
  const Layout& layout_;
  DeviceSpaces& spaces_;
  const Home& home_;
  ChunkWork& work_;
  Ranks* const ranks_;
  ChunkTable table_;
  std::vector<std::unique_ptr<Event>> events_;  // one for each operation
  std::vector<OpTime> times_;
  size_t num_times_ = 0;
  std::vector<Lease> leases_;

  const Trace* trace_ = nullptr;
  const Plan* plan_ = nullptr;
  std::vector<const Plan*> begun_;  // all plans that have begun, each once
  std::vector<uint32_t> block_of_;  // [block in the plan] the device's block
  // [space][chunk] the last drop of the chunk in this run of the plan.
  std::array<std::vector<OpIndex>, kNumSpaces> last_drop_;
  OpIndex cursor_{0};  // the next operation of the program thread
  CallIndex call_{0};  // the next call
  OpIndex last_compute_op_ = kNone;
  LastGradient last_gradient_;
  bool running_ = false;  // between begin() and the end of finish()
  double begin_s_ = 0;
  std::array<StreamStats, kNumStreamKinds> begin_stats_{};

  // The program thread has submitted its operations among the first `submitted_` of the plan, and
  // the copy thread those among the first `mapped_`. One thread can wait for each of them.
  Progress submitted_, mapped_;
  std::exception_ptr copy_error_;  // of the copy thread; set before mapped_ is cancelled
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t generation_ = 0;  // the number of plans that have begun
  std::atomic<bool> stop_ = false;

  std::vector<std::unique_ptr<Stream>> own_streams_;
  std::array<Stream*, kNumStreamKinds> streams_{};  // null: the plans do not use it
  std::thread copy_thread_;
};

}  // namespace ebb
