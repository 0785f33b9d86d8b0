// Streams of the CUDA backend: of the GPU (compute, load, store), and of host threads (update).
//
// Submitting to a GPU stream is calling CUDA: nothing is queued here, and no call waits for the
// device unless CUDA's own queue is full, or for a host thread but where new kernels are expected.
// Kernels are submitted with launch(). call() is for host functions, which run on a thread of the
// stream's own and may do what they like, call CUDA and wait included; the stream goes on when they
// return.
//
// Errors: what CUDA refuses when asked, and injected faults, drop all that is submitted afterwards.
// What fails later, on a host thread, is known to synchronize(), to events and to waiting streams
// as stream.h says; kernels that were submitted before it failed still run, on memory that is
// theirs. A fault on the GPU ends the device for this process, as CUDA has it.
//
// Thread-safety: as Stream says; stats() and synchronize() may be called from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <mutex>
#include <string_view>

#include "cuda/busy_time.h"
#include "cuda/cuda_context.h"
#include "cuda/cuda_event.h"
#include "cuda/kernel_stream.h"
#include "device/inline_function.h"
#include "system/thread_queue.h"

namespace ebb {

/// A stream of the host: a thread that runs functions. The optimizer's updates run here.
class CudaHostStream final : public Stream {
 public:
  /// `name`: of its thread; static storage, at most 15 characters.
  CudaHostStream(CudaContext& context, const char* name)
      : context_(context), point_(context.failures), queue_(name) {}

  void record(Event& event) override;
  void wait(const Event& event) override;
  /// Throws LogicError: host threads copy nothing to or from a GPU.
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
  std::exception_ptr error_;  // written by the stream's thread, which reads it without the lock
  StreamStats stats_;
  ThreadQueue<InlineFunction<void(), 400>> queue_;  // last: its thread uses the rest
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

  void launch(const Cost& cost, KernelLaunch launch) override;

 private:
  /// Counts it, and asks the fault injector. False where it is to be dropped.
  bool begin_operation(auto ask_for_a_fault);
  void check_launched(std::string_view name) const;

  CudaContext& context_;
  const bool computes_;
  const OwnedStream stream_;

  mutable std::mutex mutex_;  // between the submitting thread and others that ask
  StreamPoint point_;
  mutable BusyTime busy_time_;
  StreamStats stats_;
  CudaEvent idle_;                          // recorded by synchronize()
  CudaEvent called_, back_;                 // around a host function
  std::unique_ptr<CudaHostStream> beside_;  // made by the first call()
};

}  // namespace ebb
