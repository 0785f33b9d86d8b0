// An event of the host backend: counts its records and lets waiters mean one of them.
//
// Every record has a generation, from 1. A stream that waits means the newest generation when it
// was told to; records of one event on several streams may be reached in any order. An error that a
// record carries stays with the event.
//
// What is virtual is for events that streams of another kind record as well (cuda/): a HostStream
// hands back to await() what submit_wait() gave it, whatever that number means.
//
// Thread-safety: every method may be called from any thread. An event must outlive the streams' use
// of it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

#include "device/host/host_link.h"
#include "device/stream.h"

namespace ebb {

class HostEvent : public Event {
 public:
  struct Reached {
    double time_s = 0;  ///< as reach() was told; may be yet to come
    std::exception_ptr error;
  };

  /// Whom reach() tells, once. REQUIRES: it listens to one event at a time.
  class Listener {
   public:
    virtual void reached() = 0;

   protected:
    ~Listener() = default;

   private:
    friend HostEvent;
    uint64_t generation_ = 0;
    Listener* next_ = nullptr;
  };

  void signal() override;
  void synchronize() const override;
  bool done() const override;
  double time_s() const override;

  /// Announces a record and returns its generation.
  virtual uint64_t submit_record();
  /// What a wait that is submitted now means: throws LogicError where nothing was recorded.
  virtual uint64_t submit_wait() const { return latest(); }
  /// The newest generation; throws LogicError where there is none.
  uint64_t latest() const;
  /// `time_s`: when the work before it ended, which may be before the machine got round to this, or
  /// will end, where it is pretended.
  virtual void reach(uint64_t generation, std::exception_ptr error, double time_s = steady_now_s());
  virtual Reached await(uint64_t generation) const;
  /// Would await() return at once, with a time that is not yet to come?
  virtual bool is_over(uint64_t generation) const;
  /// Will the listener be told, by the thread that reaches the generation? False where it is
  /// reached already.
  bool tell(uint64_t generation, Listener& listener) const;
  /// Nobody will ask await() for what submit_wait() gave.
  virtual void drop_wait(uint64_t /*token*/) const {}

 protected:
  /// Every generation up to this one is reached.
  uint64_t all_reached() const;
  /// Told under the event's lock whenever that grows, before anybody who waits here.
  virtual void note_reached(uint64_t /*all_reached*/) {}

 private:
  static constexpr uint64_t kWindow = 64;
  bool is_reached(uint64_t generation) const;
  /// Those who wait for what is reached; from here on nobody's.
  Listener* take_listeners();

  mutable std::mutex mutex_;
  mutable std::condition_variable reached_one_;
  uint64_t submitted_ = 0;
  uint64_t all_reached_ = 0;    // every generation up to this one is reached
  uint64_t reached_after_ = 0;  // bit i: generation all_reached_ + 1 + i is reached
  uint64_t newest_reached_ = 0;
  double time_s_ = 0;  // when newest_reached_ was
  std::exception_ptr error_;
  mutable Listener* listeners_ = nullptr;  // a list
};

/// Throw LogicError where it belongs to another kind of device.
HostEvent& as_host_event(Event& event);
const HostEvent& as_host_event(const Event& event);

}  // namespace ebb
