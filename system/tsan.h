// Annotations for ThreadSanitizer: which synchronisation orders the work of streams, and which does
// not.
//
// A queue or an event protects its own fields with a mutex. If ThreadSanitizer saw this mutex, then
// submitting a command would order the submitting thread after every command that has run by then,
// and a missing wait between two streams would only be reported when the timing is unlucky. So the
// mutex is hidden from it, and the orderings that streams and events promise are stated: the thread
// that comes first calls tsan_release(at), the thread that comes after calls tsan_acquire(at).
// Without ThreadSanitizer a TsanHiddenLock is a std::unique_lock, and the functions do nothing.
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

inline void tsan_hide([[maybe_unused]] bool hide) {
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

inline void tsan_release([[maybe_unused]] const void* at) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(at));
#endif
}

inline void tsan_acquire([[maybe_unused]] const void* at) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(at));
#endif
}

/// Locks a mutex without ThreadSanitizer seeing it. REQUIRES: the locked code touches only the
/// fields that the mutex protects.
class TsanHiddenLock {
 public:
  explicit TsanHiddenLock(std::mutex& mutex) : hidden_(), lock_(mutex) {}
  TsanHiddenLock(const TsanHiddenLock&) = delete;
  TsanHiddenLock& operator=(const TsanHiddenLock&) = delete;

  template <class Ready>
  void wait(std::condition_variable& changed, Ready ready) {
    changed.wait(lock_, ready);
  }

 private:
  struct Hidden {
    Hidden() { tsan_hide(true); }
    ~Hidden() { tsan_hide(false); }
  };
  Hidden hidden_;  // declared before the lock, so that unlocking is hidden too
  std::unique_lock<std::mutex> lock_;
};

}  // namespace ebb
