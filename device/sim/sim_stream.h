// Streams and events of the simulated device. Every operation completes at its submission, in
// virtual time.
//
// Thread-safety: as Stream and Event.
#pragma once

#include <mutex>

#include "device/sim/sim_device.h"

namespace ebb {

class SimEvent final : public Event {
 public:
  explicit SimEvent(SimDevice& device) : device_(device) {}

  void signal() override { reach(device_.now_s()); }
  void synchronize() const override { (void)reached_time_s(); }
  bool done() const override;
  double time_s() const override { return reached_time_s(); }

  void reach(double time_s);
  /// Throws LogicError if the event was never recorded.
  double reached_time_s() const;

 private:
  SimDevice& device_;
  mutable std::mutex mutex_;
  bool recorded_ = false;
  double time_s_ = 0;
};

class SimStream final : public Stream {
 public:
  explicit SimStream(SimDevice& device) : device_(device) {}

  void record(Event& event) override;
  void wait(const Event& event) override;
  void copy(void* to, const void* from, size_t bytes, CopyKind kind) override;
  void submit(const Cost& cost, HostFunction function) override;
  void synchronize() override {}
  StreamStats stats() const override;

 private:
  void run_for(double duration_s, size_t copied_bytes);

  SimDevice& device_;
  mutable std::mutex mutex_;
  double time_s_ = 0;
  StreamStats stats_;
};

}  // namespace ebb
