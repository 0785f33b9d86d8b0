// An event that streams of a GPU and host threads record and wait for alike.
//
// A record is on a CUDA stream or on a host thread; a wait means the latest record before it. Who
// waits, for whom:
//   GPU for GPU    cudaStreamWaitEvent, which means the record made last when it is called
//   host for GPU   cudaEventSynchronize, on an event that nobody records again until then
//   GPU for host   the stream waits for a word of pinned memory to reach the record's number
//                  (cuStreamWaitValue32); the host thread writes it
//   host for host  RecordCounter
// So no host thread waits in place of a stream (but while kernels may be loaded: see
// Device::block_submitting_thread), and none of CUDA's own callback threads is used: those may run
// one function at a time, and one that waits would hold up the one it waits for.
//
// Thread-safety: every method may be called from any thread. An event must outlive the streams' use
// of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/cuda_context.h"
#include "device/stream.h"
#include "system/record_counter.h"

namespace ebb {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(CudaContext& context);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  using Reached = RecordCounter::Reached;

  void signal() override;
  void synchronize() const override;
  bool done() const override;
  double time_s() const override;

  /// A record on a CUDA stream, which stands at `point`. Throws DeviceError.
  void record_on(cudaStream_t stream, const StreamClock& point);
  /// A wait on a CUDA stream; returns what the latest record comes after. Throws LogicError where
  /// nothing was recorded, DeviceError.
  StreamClock make_wait(cudaStream_t stream) const;

  /// Announces a record on a host thread, whose stream stands at `point`. Returns the number with
  /// which the thread calls reach().
  uint64_t submit_record(const StreamClock& point);
  void reach(uint64_t record, std::exception_ptr error) {
    host_records_->reach(record, std::move(error));
  }
  /// What the latest record comes after.
  StreamClock point() const;

  /// What a wait of a host thread means that is submitted now. Every token is given to exactly one
  /// of the three methods below. Throws LogicError where nothing was recorded.
  uint64_t submit_wait() const;
  /// Blocks until the record is reached.
  Reached await(uint64_t token) const;
  /// As await(), but a failure before the record is no error.
  Reached await_end(uint64_t token) const;
  /// The thread will not wait.
  void drop_wait(uint64_t token) const;

 private:
  static constexpr uint64_t kOnDevice = uint64_t{1} << 63;  // of a token: then the rest is a slot
  enum class Where : uint8_t { Nowhere, Host, Device };

  struct DeviceRecord {
    OwnedEvent event = {};
    StreamClock point = {};  // where it was recorded
    uint32_t num_waits = 0;  // host threads that wait, or will, for this record
  };

  uint32_t take_free_record();
  /// Holds the slot of the latest record for one wait, if that is on the device; else kNoRecord.
  uint32_t hold_latest() const;
  void let_go(uint32_t record) const;
  Reached await_record(uint32_t record) const;
  uint64_t newest_host_record() const;
  cudaError_t query_record(uint32_t record) const;
  cudaEvent_t event_of(uint32_t record) const;

  static constexpr uint32_t kNoRecord = UINT32_MAX;

  CudaContext& context_;
  uint32_t* const flag_;  // the number of host records reached, without a gap
  std::unique_ptr<RecordCounter> host_records_;

  mutable std::mutex mutex_;
  mutable std::vector<DeviceRecord>
      device_records_;            // one, or more while somebody waits for an older record
  Where where_ = Where::Nowhere;  // the latest record, as the next two
  uint32_t record_ = 0;
  StreamClock point_;
};

}  // namespace ebb
