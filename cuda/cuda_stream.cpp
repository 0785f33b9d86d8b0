#include "cuda/cuda_stream.h"

#include <algorithm>
#include <string>

#include "cuda/cuda_error.h"
#include "cuda/home_memory.h"
#include "device/errors.h"
#include "system/clock.h"
#include "system/tsan.h"

namespace ebb {
namespace {

/// Loads and stores have priority over kernels: kernels may wait for a copy, so a copy should not
/// wait for kernels.
int priority_of(StreamKind role) {
  int least = 0, greatest = 0;
  EBB_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
  return role == StreamKind::Compute ? least : greatest;
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

void CudaHostStream::record(Event& event) {
  CudaEvent& own = cuda_event(event);
  point_.advance();
  queue_.submit(
      [this, &own, record = own.submit_record(point_.clock())] { own.reach(record, error_); });
}

void CudaHostStream::wait(const Event& event) {
  const CudaEvent& own = cuda_event(event);
  const uint64_t token = own.submit_wait();  // throws if the event was never recorded
  point_.advance();
  point_.merge(own.point());
  queue_.submit(
      [this, &own, token, operation = point_.operation()] { run_wait(own, token, operation); });
}

void CudaHostStream::run_wait(const CudaEvent& event, uint64_t token, const Operation& operation) {
  if (error_) return event.drop_wait(token);
  const double begin_s = steady_now_s();
  CudaEvent::Reached reached = event.await(token);
  if (reached.error) fail(operation, std::move(reached.error));
  TsanHiddenLock lock(mutex_);
  stats_.waiting_s += steady_now_s() - begin_s;
}

void CudaHostStream::copy(void*, const void*, size_t, CopyKind) {
  throw LogicError("host threads copy nothing to or from a GPU; use the load or the store stream");
}

void CudaHostStream::submit(const Cost& cost, HostFunction function) {
  EBB_CHECK(static_cast<bool>(function), "calling an empty function");
  point_.advance();
  queue_.submit([this, name = cost.name, function, operation = point_.operation()]() mutable {
    run_call(name, function, operation);
  });
}

void CudaHostStream::run_call(std::string_view name, HostFunction& function,
                              const Operation& operation) {
  if (error_) return;
  const double begin_s = steady_now_s();
  try {
    context_.faults.check_launch(name);
    function();
  } catch (...) {
    fail(operation, std::current_exception());
  }
  TsanHiddenLock lock(mutex_);
  stats_.busy_s += steady_now_s() - begin_s;
  ++stats_.num_operations;
}

void CudaHostStream::fail(const Operation& operation, std::exception_ptr error) {
  context_.failures.fail(operation, error);
  TsanHiddenLock lock(mutex_);
  error_ = std::move(error);
}

void CudaHostStream::synchronize() {
  EBB_CHECK(!queue_.is_own_thread(), "a stream cannot wait for itself");
  queue_.wait_until_idle();
  std::exception_ptr error;
  {
    TsanHiddenLock lock(mutex_);
    error = error_;
  }
  if (error) std::rethrow_exception(error);
}

StreamStats CudaHostStream::stats() const {
  TsanHiddenLock lock(mutex_);
  return stats_;
}

// ---- The GPU

CudaStream::CudaStream(CudaContext& context, StreamKind role)
    : context_(context),
      computes_(role == StreamKind::Compute),
      stream_(make_stream(priority_of(role))),
      in_flight_(context),
      point_(context.failures),
      idle_(context),
      called_(context),
      back_(context) {}

CudaStream::~CudaStream() {
  (void)context_.try_enter();
  (void)cudaStreamSynchronize(stream_.get());  // what is queued still runs
}

void CudaStream::make_room(uint64_t num_entries) {
  try {
    in_flight_.add_operation(stream_.get(), num_entries);
  } catch (...) {
    std::lock_guard lock(mutex_);
    point_.fail(std::current_exception());
  }
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

void CudaStream::launch(const Cost& cost, KernelLaunch launch, uint64_t most_kernels) {
  make_room(most_kernels + 1);
  std::lock_guard lock(mutex_);
  if (!begin_operation([&] { context_.faults.check_launch(cost.name); })) return;
  try {
    launch(stream_.get());
    check_launched(cost.name);
  } catch (...) {
    (void)cudaGetLastError();  // reported here, and not by the next launch of another stream
    point_.fail(std::current_exception());
  }
}

void CudaStream::record(Event& event) {
  CudaEvent& own = cuda_event(event);
  make_room(1);
  std::lock_guard lock(mutex_);
  point_.advance();
  try {
    own.record_on(stream_.get(), point_.clock());
  } catch (...) {  // the device is lost: threads that wait get the error
    const std::exception_ptr error = std::current_exception();
    point_.fail(error);
    own.reach(own.submit_record(point_.clock()), error);
  }
}

void CudaStream::wait(const Event& event) {
  const CudaEvent& own = cuda_event(event);
  make_room(2);
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
  HomeMemory::Copy rest{.to = static_cast<std::byte*>(to),
                        .from = static_cast<const std::byte*>(from),
                        .bytes = bytes,
                        .kind = kind_of(kind)};
  for (bool is_first = true; is_first || rest.bytes > 0; is_first = false) {
    make_room(context_.home->num_entries(rest) + 1);
    std::lock_guard lock(mutex_);
    if (is_first && !begin_operation([&] { context_.faults.check_copy(bytes); })) return;
    try {
      context_.enter();
      context_.home->copy_part(stream_.get(), point_, rest);
      if (rest.bytes == 0) stats_.copied_bytes += bytes;
    } catch (...) {
      return point_.fail(std::current_exception());
    }
  }
}

// The host function runs on another thread. That thread calls the fault injector, and its failures
// count as failures of this stream.
void CudaStream::submit(const Cost& cost, HostFunction function) {
  EBB_CHECK(static_cast<bool>(function), "calling an empty function");
  make_room(3);  // called_, the wait for back_, and one of BusyTime
  std::lock_guard lock(mutex_);
  point_.advance();
  if (point_.error()) return;
  try {
    if (!beside_) beside_ = std::make_unique<CudaHostStream>(context_, "ebb beside");
    context_.enter();
    busy_time_.mark(stream_.get(), BusyTime::Doing::Working);
    called_.record_on(stream_.get(), point_.clock());
    beside_->wait(called_);
    beside_->submit(cost, function);
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
  const CudaEvent::Reached idle = idle_.await_end(idle_.submit_wait());
  if (computes_) context_.data_error.get()->check();  // a bad index may be the cause of a failure
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
