// Locks that ThreadSanitizer does not take for an order of the work.
//
// Queues and events share their own state under a mutex. Were each lock an ordering, submitting one
// command would order the submitting thread after every command that has run by then, and a missing
// wait would be reported only when the timing is unlucky. So those locks are hidden, and the orders
// that streams and events promise are told explicitly: give_order(at) by whoever was first,
// take_order(at) by whoever comes after. Without ThreadSanitizer a QuietLock is a plain lock and
// the rest is nothing. Only the state that the mutex guards may be touched under a QuietLock.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace ebb {

inline void hide_from_tsan([[maybe_unused]] bool hide) {
#if defined(__SANITIZE_THREAD__)
  if (hide) {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  } else {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
#endif
}

inline void give_order([[maybe_unused]] const void* at) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(at));
#endif
}

inline void take_order([[maybe_unused]] const void* at) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(at));
#endif
}

class QuietLock {
 public:
  explicit QuietLock(std::mutex& mutex) : hidden_(), lock_(mutex) {}
  QuietLock(const QuietLock&) = delete;
  QuietLock& operator=(const QuietLock&) = delete;

  template <class Ready>
  void wait(std::condition_variable& changed, Ready ready) {
    changed.wait(lock_, ready);
  }

 private:
  struct Hidden {
    Hidden() { hide_from_tsan(true); }
    ~Hidden() { hide_from_tsan(false); }
  };
  Hidden hidden_;  // before the lock, so that unlocking is hidden too
  std::unique_lock<std::mutex> lock_;
};

}  // namespace ebb
