#include "cuda/cuda_stream.h"

#include <algorithm>
#include <string>

#include "cuda/cuda_error.h"
#include "cuda/home_memory.h"
#include "device/errors.h"

namespace ebb {
namespace {

/// Loads and stores go before kernels: a copy engine that waits for its turn makes kernels wait.
int priority_of(StreamRole role) {
  int least = 0, greatest = 0;
  EBB_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
  return role == StreamRole::Compute ? least : greatest;
}

cudaMemcpyKind kind_of(CopyKind kind) {
  switch (kind) {
    case CopyKind::Load:
      return cudaMemcpyHostToDevice;
    case CopyKind::Store:
      return cudaMemcpyDeviceToHost;
    case CopyKind::Within:
      return cudaMemcpyDeviceToDevice;
  }
  return cudaMemcpyDefault;
}

const CudaEvent& cuda_event(const Event& event) {
  const auto* cuda = dynamic_cast<const CudaEvent*>(&event);
  EBB_CHECK(cuda != nullptr, "the event belongs to another kind of device");
  return *cuda;
}
CudaEvent& cuda_event(Event& event) {
  return const_cast<CudaEvent&>(cuda_event(std::as_const(event)));
}

}  // namespace

// ---- Host threads

CudaHostStream::CudaHostStream(CudaContext& context, const char* name, int num_threads)
    : context_(context),
      point_(context.failures),
      host_({.faults = &context.faults,
             .name = name,
             .num_loop_threads = num_threads,
             .failed = [this](uint64_t position, std::exception_ptr error) {
               point_.fail_at(position, std::move(error));
             }}) {}

void CudaHostStream::record(Event& event) {
  CudaEvent& own = cuda_event(event);
  point_.advance();
  own.expect_record(point_.clock());
  host_.record(own);
}

void CudaHostStream::wait(const Event& event) {
  const CudaEvent& own = cuda_event(event);
  host_.wait(own);  // throws where nothing was recorded
  point_.advance();
  point_.merge(own.point());
}

void CudaHostStream::copy(void*, const void*, size_t, CopyKind) {
  throw LogicError("host threads copy nothing to or from a GPU; use the load or the store stream");
}

void CudaHostStream::call(const Cost& cost, HostFunction function) {
  host_.call(cost, function);  // throws where there is none
  point_.advance();
}

void CudaHostStream::loop(const Cost& cost, LoopFunction function) {
  host_.loop(cost, function);
  point_.advance();
}

// ---- The GPU

CudaStream::CudaStream(CudaContext& context, StreamRole role)
    : context_(context),
      computes_(role == StreamRole::Compute),
      stream_(make_stream(priority_of(role))),
      point_(context.failures),
      idle_(context),
      called_(context),
      back_(context) {}

CudaStream::~CudaStream() {
  (void)context_.try_enter();
  (void)cudaStreamSynchronize(stream_.get());  // what is queued still runs
}

bool CudaStream::begin_operation(auto ask_for_a_fault) {
  point_.advance();
  if (point_.error()) return false;
  ++stats_.num_operations;
  try {
    context_.enter();
    busy_time_.mark(stream_.get(), BusyTime::Doing::Working);
    ask_for_a_fault();
  } catch (...) {
    point_.fail(std::current_exception());
    return false;
  }
  return true;
}

void CudaStream::check_launched(std::string_view name) const {
  EBB_CUDA(cudaGetLastError(), "launching " + std::string(name));
}

void CudaStream::launch(const Cost& cost, KernelLaunch launch) {
  std::lock_guard lock(mutex_);
  if (!begin_operation([&] { context_.faults.check_launch(cost.name); })) return;
  try {
    launch(stream_.get());
    check_launched(cost.name);
  } catch (...) {
    (void)cudaGetLastError();  // it is told here, and not by the next launch of another stream
    point_.fail(std::current_exception());
  }
}

void CudaStream::record(Event& event) {
  CudaEvent& own = cuda_event(event);
  std::lock_guard lock(mutex_);
  point_.advance();
  try {
    own.record_on(stream_.get(), point_.clock());
  } catch (...) {  // the device is lost; whoever waits is told so
    const std::exception_ptr error = std::current_exception();
    point_.fail(error);
    own.expect_record(point_.clock());
    own.reach(own.submit_record(), error);
  }
}

void CudaStream::wait(const Event& event) {
  const CudaEvent& own = cuda_event(event);
  std::lock_guard lock(mutex_);
  point_.advance();
  try {
    context_.enter();
    busy_time_.mark(stream_.get(), BusyTime::Doing::Waiting);
    point_.merge(own.make_wait(stream_.get()));
  } catch (const DeviceError&) {
    point_.fail(std::current_exception());
  }
}

void CudaStream::copy(void* to, const void* from, size_t bytes, CopyKind kind) {
  std::lock_guard lock(mutex_);
  if (!begin_operation([&] { context_.faults.check_copy(bytes); })) return;
  try {
    context_.home->copy(stream_.get(), point_, static_cast<std::byte*>(to),
                        static_cast<const std::byte*>(from), bytes, kind_of(kind));
    stats_.copied_bytes += bytes;
  } catch (...) {
    point_.fail(std::current_exception());
  }
}

// The thread beside asks the fault injector and fails in the stream's place.
void CudaStream::call(const Cost& cost, HostFunction function) {
  EBB_CHECK(static_cast<bool>(function), "calling an empty function");
  std::lock_guard lock(mutex_);
  point_.advance();
  if (point_.error()) return;
  try {
    if (!beside_) beside_ = std::make_unique<CudaHostStream>(context_, "ebb beside");
    context_.enter();
    busy_time_.mark(stream_.get(), BusyTime::Doing::Working);
    called_.record_on(stream_.get(), point_.clock());
    beside_->wait(called_);
    beside_->call(cost, function);
    beside_->record(back_);
    point_.merge(back_.make_wait(stream_.get()));
  } catch (...) {
    point_.fail(std::current_exception());
  }
}

void CudaStream::synchronize() {
  StreamClock point;
  {
    std::lock_guard lock(mutex_);
    point = point_.clock();
    context_.enter();
    busy_time_.mark(stream_.get(), BusyTime::Doing::Nothing);
    idle_.record_on(stream_.get(), point);
  }
  const HostEvent::Reached idle = idle_.await_end(idle_.submit_wait());
  if (computes_) context_.data_error.get()->check();  // what failed may have come of it
  if (idle.error) std::rethrow_exception(idle.error);
  if (const auto error = context_.failures.error_before(point)) std::rethrow_exception(error);
  {
    std::lock_guard lock(mutex_);
    busy_time_.count();
  }
  if (computes_) context_.clock.refresh();
}

StreamStats CudaStream::stats() const {
  std::lock_guard lock(mutex_);
  if (context_.try_enter() == cudaSuccess) busy_time_.count();
  StreamStats stats = stats_;
  stats.busy_s = busy_time_.working_s();
  stats.waiting_s = busy_time_.waiting_s();
  if (beside_) stats.num_operations += beside_->stats().num_operations;
  return stats;
}

}  // namespace ebb
