// Runs plans on a device. Training, evaluation and inference are users of one runner.
//
//   runner.run(trace, plan, [&] { model_code(runner.hooks(), compute); });
//
// The code that makes the calls of a trace is called the program. It needs no tape and no streams
// of Ebb's: any code that calls hooks() around its calls, and submits their kernels to the compute
// stream, can be a program. The caller gives the compute stream; the runner has all others.
//
// Thread-safety: one thread calls a runner. Broken contracts are LogicErrors.
#pragma once

#include <cstdint>
#include <span>

#include "device/inline_function.h"
#include "scheduler/run/executor.h"
#include "scheduler/run/run_buffers.h"

namespace ebb {

class Runner {
 public:
  /// All references must outlive the runner. `max_ops`: the most operations of a plan.
  /// `ranks`: plans have messages between them; null: there is one rank.
  Runner(Device& device, Stream& compute, const Layout& layout, DeviceSpaces& spaces,
         const Home& home, RunBuffers& buffers, ChunkWork& work, uint32_t max_ops,
         Ranks* ranks = nullptr);

  /// For the program, while a plan runs.
  Hooks& hooks() { return executor_; }
  /// To be called before a run, while no plan runs: submits the copy of the inputs.
  void upload() { buffers_.upload(executor_.load(), compute_); }
  /// To be called at the end of a program: submits the copy of the losses to the host.
  void download_losses() { buffers_.download_losses(compute_, executor_.store()); }

  using Program = InlineFunction<void(), 64>;
  /// Runs a plan. `program` makes the calls of the trace in order. Waits until all work is done.
  /// `blocks_submitting_thread`: see Executor::begin(). If anything throws, the runner waits for
  /// the submitted work, and then no plan can run any more. An error that a kernel found in its
  /// data is thrown in preference to others, because it may be their cause. REQUIRES: the chunks on
  /// the device are those with which the plan begins; see Executor::begin() for the lifetimes.
  ExecutorStats run(const Trace& trace, const Plan& plan, Program program,
                    bool blocks_submitting_thread = false);
  /// Runs a plan that has no calls: an initialise, warm-up or flush plan.
  ExecutorStats run(const Plan& plan);

  /// The number of chunks on the device. Between plans these are chunks of weights.
  uint32_t num_chunks_on_device() const { return executor_.num_chunks_on_device(); }
  /// The times of the operations of the plan that ran last. Valid until the next run.
  std::span<const OpTime> times() const { return executor_.times(); }

 private:
  Stream& compute_;
  RunBuffers& buffers_;
  ChunkWork& work_;
  const Trace no_calls_ = {};
  Executor executor_;
};

}  // namespace ebb
