// Device memory filled and waited for, before and between steps: never during one, as it blocks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "cuda/handles.h"

namespace ebb {

/// Bytes of it are NaN in fp32, bf16 and fp16.
inline constexpr int kPoisonByte = 0xff;

/// A stream that orders nothing else; each fill is done when it returns. One thread at a time.
class SetupStream {
 public:
  explicit SetupStream(int device);

  /// Throws DeviceError.
  void fill(std::byte* memory, int byte, size_t bytes);

 private:
  OwnedStream stream_;
};

}  // namespace ebb
