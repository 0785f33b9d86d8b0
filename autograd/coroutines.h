// Functions that run alternately on the caller's thread, each on a stack of its own
// (autograd/fiber.h). Inside of a function, yield() lets the next one run.
//
// So code that is written for one micro-batch runs for several: each yield lets the next one run.
//
// Not thread-safe. Nothing is allocated after construction. An exception ends the run: yield()
// throws in functions that were interrupted (they must not catch it), functions that did not begin
// are skipped, and run() rethrows the first exception. Throws ConfigError where the process has no
// addresses for so many stacks.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "autograd/fiber.h"

namespace ebb {

class Coroutines {
 public:
  /// For at most `most` functions.
  explicit Coroutines(uint32_t most);

  /// Runs body(0) until it yields or returns, then body(1), ..., then body(0) again, until all have
  /// returned. REQUIRES: count <= most.
  template <class Body>
  void run(uint32_t count, const Body& body) {
    run_erased(count, &body, [](const void* b, uint32_t i) { (*static_cast<const Body*>(b))(i); });
  }
  /// Inside of body(i): lets the others run until they yield.
  void yield(uint32_t i);

 private:
  struct Cancelled {};
  using Call = void (*)(const void*, uint32_t);

  void run_erased(uint32_t count, const void* body, Call call);
  void run_body(const void* body, Call call, uint32_t i);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::exception_ptr error_;
};

}  // namespace ebb
