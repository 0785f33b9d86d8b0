// Shared code of the kernels: conversions, sums over a warp and over a block, launches.
//
// A plain C++ compiler can compile the device code, for the emulated GPU of the tests: launches are
// function calls, and device_language.h has shared memory and tensor cores. The order of sums
// follows from shapes alone.
#pragma once

#include <cuda_runtime.h>
#include <device_language.h>

#include <cstdint>
#include <string>

#include "device/dtype.h"
#include "device/errors.h"
#include "device/kernel_arguments.h"

namespace ebb::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

/// Of an H100 and an H200. Grids are sized for them on every GPU, because results must not depend
/// on the GPU.
inline constexpr int64_t kMultiprocessors = 132;

/// Exponents are clamped to this. e^88 is finite and exceeds 2^126, so __fdividef(x, 1 + e^88) is 0
/// for each finite x.
inline constexpr float kLargestExponent = 88.0f;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(BF16 x) { return x; }
__device__ __forceinline__ float to_float(F16 x) { return half_to_float(x.bits); }

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

/// The sum over the lanes of a warp, the same on all lanes. Adds lanes i and i ^ 16, then 8, 4, 2,
/// 1.
template <class T>
__device__ __forceinline__ T sum_of_warp(T x) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) x += __shfl_xor_sync(kAllLanes, x, bits);
  return x;
}
__device__ __forceinline__ float max_of_warp(float x) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, bits));
  }
  return x;
}

/// Reduces one value of each warp over a block of kWarps warps; all threads get the result.
/// `scratch`: kWarps floats of shared memory.
template <int kWarps, class Fold>
__device__ __forceinline__ float fold_block(float x, float* scratch, const Fold& fold) {
  __syncthreads();  // the last use of the scratch is done
  if (lane_index() == 0) scratch[warp_index()] = x;
  __syncthreads();
  float result = scratch[0];
  for (int i = 1; i < kWarps; ++i) result = fold(result, scratch[i]);
  return result;
}
template <int kWarps>
__device__ __forceinline__ float sum_of_block(float x, float* scratch) {
  return fold_block<kWarps>(sum_of_warp(x), scratch, [](float a, float b) { return a + b; });
}
template <int kWarps>
__device__ __forceinline__ float max_of_block(float x, float* scratch) {
  return fold_block<kWarps>(max_of_warp(x), scratch, [](float a, float b) { return fmaxf(a, b); });
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Launches a kernel on a stream. Does nothing if the grid has no blocks. Throws DeviceError if
/// CUDA refuses the launch.
template <class... P, class... A>
void launch(const char* name, cudaStream_t stream, const dim3& grid, int threads,
            size_t shared_bytes, void (*kernel)(P...), const A&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr size_t kAlwaysThere = 48 * 1024;
  cudaError_t status = cudaSuccess;
  if (shared_bytes > kAlwaysThere) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  if (status == cudaSuccess) {
    status = cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
  }
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(name) + ": a launch of " + std::to_string(grid.x) + " x " +
                    std::to_string(grid.y) + " x " + std::to_string(grid.z) + " blocks of " +
                    std::to_string(threads) + " threads and " + std::to_string(shared_bytes) +
                    " B of shared memory failed: " + cudaGetErrorString(status));
}

/// A grid of ceil(n / a_block) blocks. REQUIRES: fewer than 2^31 blocks.
inline dim3 blocks_for(int64_t n, int64_t a_block) {
  return dim3(static_cast<unsigned>(ceil_div(n, a_block)));
}

}  // namespace ebb::cuda
