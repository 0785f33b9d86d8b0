// A loop for host threads, and what makes one in stream order: see Stream::loop().
#pragma once

#include <cstdint>
#include <string_view>

#include "device/inline_function.h"

namespace ebb {

class Device;

/// What a thread does, for a profiler to show: "forward attention", "load weights 7".
struct RangeName {
  std::string_view what, name;
  int64_t number = -1;  ///< none
};

struct Loop {
  int64_t n = 0;  ///< 0: there is nothing to do, and `then` is not called
  /// For each of 0 .. n - 1 once, in any order, on any of the threads, several at a time. Must
  /// depend on its index alone.
  InlineFunction<void(int64_t), 256> body = {};
  /// Behind all of them, on the stream's own thread; may be empty.
  InlineFunction<void(), 64> then = {};
  /// Where a profiler is told of bodies, and as what; null: nowhere.
  Device* shown_on = nullptr;
  RangeName range = {};
};

using LoopFunction = InlineFunction<Loop(), 320>;

}  // namespace ebb
