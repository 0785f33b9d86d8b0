#include "cuda/setup_stream.h"

#include "cuda/cuda_error.h"
#include "device/errors.h"

namespace ebb {

SetupStream::SetupStream(int device) {
  EBB_CUDA(cudaSetDevice(device), "using GPU " + std::to_string(device));
  stream_ = make_stream();
}

void SetupStream::fill(std::byte* memory, int byte, size_t bytes) {
  if (bytes == 0) return;
  EBB_CUDA(cudaMemsetAsync(memory, byte, bytes, stream_.get()), "filling " + format_bytes(bytes));
  EBB_CUDA(cudaStreamSynchronize(stream_.get()), "filling " + format_bytes(bytes));
}

}  // namespace ebb
