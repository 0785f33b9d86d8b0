// An event that GPU streams and host threads can record and wait for.
//
// A record is made on a CUDA stream or on a host thread. A wait is for the latest record that was
// submitted before the wait. This is how a waiter waits for a record:
//   GPU for GPU    cudaStreamWaitEvent, which waits for the last record before the function call
//   host for GPU   cudaEventQuery, again and again. While a host thread waits for a CUDA event, or
//                  will wait, new records use another CUDA event
//   GPU for host   the stream waits until a word of pinned memory reaches the record's number
//                  (cuStreamWaitValue32); the host thread writes the word
//   host for host  RecordCounter
// So no host thread blocks on behalf of a stream, except while kernels may be loaded (see
// Device::block_submitting_thread). CUDA's callback threads are not used: they may run one function
// at a time, and a function that waits could block the function that it waits for.
//
// Thread-safety: every method may be called from any thread. An event must outlive its use by
// streams.
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

  /// Records the event on a CUDA stream. `point`: the clock of the stream's point (failures.h).
  /// Throws DeviceError.
  void record_on(cudaStream_t stream, const StreamClock& point);
  /// Makes a CUDA stream, perhaps of another device, wait for the latest record. Returns the point
  /// of that record. REQUIRES: the stream's device is current. Throws LogicError if the event was
  /// never recorded, and DeviceError if CUDA reports an error.
  StreamClock make_wait(cudaStream_t stream) const;

  /// Announces a record on a host thread whose stream is at `point`. Returns the number of the
  /// record. When its work is complete, the thread passes this number to reach().
  uint64_t submit_record(const StreamClock& point);
  /// Ends the waits for this record. `error`: why the work before the record failed, or null.
  void reach(uint64_t record, std::exception_ptr error) {
    host_records_->reach(record, std::move(error));
  }
  /// The point of the latest record.
  StreamClock point() const;

  /// Registers a wait of a host thread for the latest record, and returns a token. The caller must
  /// pass every token to exactly one of the three methods below. Throws LogicError if the event was
  /// never recorded.
  uint64_t submit_wait() const;
  /// Blocks until the record of the token is reached. The result has the first failure before the
  /// record, or null.
  Reached await(uint64_t token) const;
  /// As await(), but the result has only a failure of the wait itself, not one before the record.
  Reached await_end(uint64_t token) const;
  /// Cancels the wait.
  void drop_wait(uint64_t token) const;

 private:
  // This bit of a token says that the record is on the device; the other bits are its index there.
  static constexpr uint64_t kOnDevice = uint64_t{1} << 63;
  enum class Where : uint8_t { Nowhere, Host, Device };

  struct DeviceRecord {
    OwnedEvent event = {};
    StreamClock point = {};  // where it was recorded
    uint32_t num_waits = 0;  // host threads that wait for this record, or will wait
  };

  uint32_t take_free_record();
  /// If the latest record is on the device, reserves its slot for one wait and returns the slot.
  /// Otherwise returns kNoRecord.
  uint32_t hold_latest() const;
  /// Ends the reservation of hold_latest().
  void let_go(uint32_t record) const;
  Reached await_record(uint32_t record) const;
  uint64_t newest_host_record() const;
  cudaError_t query_record(uint32_t record) const;
  cudaEvent_t event_of(uint32_t record) const;

  static constexpr uint32_t kNoRecord = UINT32_MAX;

  CudaContext& context_;
  uint32_t* const flag_;  // all host records up to this number are reached
  std::unique_ptr<RecordCounter> host_records_;

  mutable std::mutex mutex_;
  mutable std::vector<DeviceRecord>
      device_records_;            // one, or more while a thread waits for an older record
  Where where_ = Where::Nowhere;  // of the latest record, like the next two members
  uint32_t record_ = 0;
  StreamClock point_;
};

}  // namespace ebb
