// The streams of the CUDA backend: streams of the GPU (compute, load, store) and of host threads
// (update).
//
// A submission to a GPU stream calls CUDA directly; there is no queue of our own. It waits for the
// device only while many operations are in flight (in_flight.h), and for a host thread only while
// new kernels may be loaded (Device::block_submitting_thread). launch() submits kernels. submit()
// submits a host function: it runs on a separate thread of the stream, may call CUDA and may wait,
// and the stream continues when the function returns.
//
// Errors: after a submission that CUDA refuses, or an injected fault, all later submissions are
// dropped. A failure on a host thread reaches synchronize(), events and waiting streams as stream.h
// says. Kernels that were submitted before that failure still run. Their data may be wrong, but
// their addresses are valid. After a fault on the GPU, this process cannot use the device any more.
//
// Thread-safety: as Stream; stats() and synchronize() may also be called from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <mutex>
#include <string_view>

#include "cuda/busy_time.h"
#include "cuda/cuda_context.h"
#include "cuda/cuda_event.h"
#include "cuda/in_flight.h"
#include "cuda/kernel_stream.h"
#include "device/inline_function.h"
#include "system/thread_queue.h"

namespace ebb {

/// A stream of host functions: one thread runs them in order. The optimizer's updates run here.
class CudaHostStream final : public Stream {
 public:
  /// `name`: the name of the thread; static storage, at most 15 characters.
  CudaHostStream(CudaContext& context, const char* name, size_t queue_capacity = kQueueCapacity)
      : context_(context), point_(context.failures), queue_(name, queue_capacity) {}

  void record(Event& event) override;
  void wait(const Event& event) override;
  /// Throws LogicError: only GPU streams copy to or from a GPU.
  void copy(void* to, const void* from, size_t bytes, CopyKind kind) override;
  void submit(const Cost& cost, HostFunction function) override;
  void synchronize() override;
  StreamStats stats() const override;

 private:
  void run_wait(const CudaEvent& event, uint64_t token, const Operation& operation);
  void run_call(std::string_view name, HostFunction& function, const Operation& operation);
  void fail(const Operation& operation, std::exception_ptr error);

  CudaContext& context_;
  StreamPoint point_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;  // written by the stream's thread only, which reads it without lock
  StreamStats stats_;
  // Last: its thread uses the members above.
  ThreadQueue<InlineFunction<void(), sizeof(HostFunction) + 64>> queue_;
};

class CudaStream final : public KernelStream {
 public:
  CudaStream(CudaContext& context, StreamKind role);
  ~CudaStream() override;

  void record(Event& event) override;
  void wait(const Event& event) override;
  void copy(void* to, const void* from, size_t bytes, CopyKind kind) override;
  void submit(const Cost& cost, HostFunction function) override;
  void synchronize() override;
  StreamStats stats() const override;

  void launch(const Cost& cost, KernelLaunch launch, uint64_t most_kernels) override;

 private:
  /// Called before each operation, without the lock. `num_entries`: the most entries that it adds
  /// to CUDA's queue, one of BusyTime included. The stream fails if CUDA reports an error.
  void make_room(uint64_t num_entries);
  /// Counts one operation, and calls the fault injector. Returns false if the operation must be
  /// dropped.
  bool begin_operation(auto ask_for_a_fault);
  void check_launched(std::string_view name) const;

  CudaContext& context_;
  const bool computes_;
  const OwnedStream stream_;
  InFlight in_flight_;  // for the submitting thread

  mutable std::mutex mutex_;  // for the submitting thread, stats() and synchronize()
  StreamPoint point_;
  mutable BusyTime busy_time_;
  StreamStats stats_;
  CudaEvent idle_;                          // recorded by synchronize()
  CudaEvent called_, back_;                 // recorded before and after a host function
  std::unique_ptr<CudaHostStream> beside_;  // runs host functions; made by the first submit()
};

}  // namespace ebb
