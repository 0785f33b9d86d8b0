// The kernels of swish.h on a GPU: each run() launches on the stream and returns.
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "swish_kernels.h"

namespace {

constexpr int kThreads = 256;

__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

__device__ void write_to(float& to, float value, ebb::Write write) {
  to = write == ebb::Write::Add ? to + value : value;
}

__device__ int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__global__ void forward(float* y, const float* x, const float* slope, int64_t n, int64_t columns) {
  const int64_t i = thread_index();
  if (i < n) y[i] = x[i] * sigmoid(slope[i % columns] * x[i]);
}

__global__ void backward_input(float* dx, const float* dy, const float* x, const float* slope,
                               int64_t n, int64_t columns, ebb::Write write) {
  const int64_t i = thread_index();
  if (i >= n) return;
  const float z = slope[i % columns] * x[i], s = sigmoid(z);
  write_to(dx[i], dy[i] * (s + z * s * (1 - s)), write);
}

/// A thread adds the rows of its column in order: no atomics, so the bits are always the same.
__global__ void backward_slope(float* dslope, const float* dy, const float* x, const float* slope,
                               int64_t n, int64_t columns, ebb::Write write) {
  const int64_t c = thread_index();
  if (c >= columns) return;
  float sum = 0;
  for (int64_t i = c; i < n; i += columns) {
    const float s = sigmoid(slope[c] * x[i]);
    sum += dy[i] * x[i] * x[i] * s * (1 - s);
  }
  write_to(dslope[c], sum, write);
}

/// One thread for each of n elements.
template <class... P, class... A>
void launch(cudaStream_t stream, void (*kernel)(P...), int64_t n, const A&... arguments) {
  if (n == 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
  if (status == cudaSuccess) return;
  throw ebb::DeviceError(std::string("launching swish: ") + cudaGetErrorString(status));
}

}  // namespace

void SwishForward::run(ebb::GpuStream stream) const {
  const int64_t n = x.num_elements();
  launch(stream, forward, n, y.as<float>(), x.as<float>(), slope.as<float>(), n, x.columns());
}

void SwishBackwardInput::run(ebb::GpuStream stream) const {
  const int64_t n = x.num_elements();
  launch(stream, backward_input, n, dx.as<float>(), dy.as<float>(), x.as<float>(),
         slope.as<float>(), n, x.columns(), write);
}

void SwishBackwardSlope::run(ebb::GpuStream stream) const {
  launch(stream, backward_slope, x.columns(), dslope.as<float>(), dy.as<float>(), x.as<float>(),
         slope.as<float>(), x.num_elements(), x.columns(), write);
}
