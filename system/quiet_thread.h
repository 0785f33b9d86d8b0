// Starts threads that receive no signals, so that the threads of the program that wait for signals
// get them.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace ebb {

/// A thread that runs `body` with all signals blocked. Throws what the constructor of a thread
/// throws.
template <class Body>
std::thread start_quiet_thread(Body body) {
  class Blocked {  // in this thread, from which the new one inherits it
   public:
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

   private:
    sigset_t before_;
  };
  const Blocked blocked;
  return std::thread(std::move(body));
}

}  // namespace ebb
