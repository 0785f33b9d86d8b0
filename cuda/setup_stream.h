// Fills device memory and waits until it is filled. Used before and between steps, never during a
// step, because it blocks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "cuda/handles.h"

namespace ebb {

/// Memory filled with this byte is NaN in fp32, bf16 and fp16.
inline constexpr int kPoisonByte = 0xff;

/// A stream of its own, with no order to other streams. Used by one thread at a time.
class SetupStream {
 public:
  explicit SetupStream(int device);

  /// Sets `bytes` bytes to `byte` and waits until they are set. Throws DeviceError.
  void fill(std::byte* memory, int byte, size_t bytes);

 private:
  OwnedStream stream_;
};

}  // namespace ebb
