// Bodies that take turns: each on a stack of its own (autograd/fiber.h), all on the caller's
// thread.
//
// Ordinary code that calls yield() now and then can so be run in steps, several copies of it in
// step with one another, without being written for it.
//
// Not thread-safe. Nothing allocates after construction. An exception ends the run: bodies that
// wait are unwound (yield() throws in them; do not catch it), those that have not begun do not
// begin, and run() rethrows the first. ConfigError where there are no addresses for so many stacks.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "autograd/fiber.h"

namespace ebb {

class Coroutines {
 public:
  /// For so many bodies.
  explicit Coroutines(uint32_t most);

  /// Runs body(0) until it passes its turn or ends, then body(1), ..., then body(0) again, until
  /// all have ended. REQUIRES: count is at most what this was made for.
  template <class Body>
  void run(uint32_t count, const Body& body) {
    run_erased(count, &body, [](const void* b, uint32_t i) { (*static_cast<const Body*>(b))(i); });
  }
  /// Inside body(i): lets the others have their turns.
  void yield(uint32_t i);

 private:
  struct Abandoned {};
  using Call = void (*)(const void*, uint32_t);

  void run_erased(uint32_t count, const void* body, Call call);
  void run_body(const void* body, Call call, uint32_t i);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::exception_ptr error_;
};

}  // namespace ebb
