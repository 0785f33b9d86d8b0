// The part of CUDA's language that cuda/kernels/ uses, as plain C++: for tests.
//
// A thread of a block is a fiber. A block runs on one OS thread, and a few OS threads run the
// blocks (tests/cuda_emulation/grid.h). A barrier that not all threads of a block reach, or at
// which they wait in different places, is an error. Each warp has 32 lanes: block sizes that are
// not a multiple of 32 and masks without all lanes are refused.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_emulation/code_loading.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/grid.h"

// NOLINTBEGIN: the names are CUDA's

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __restrict__ __restrict

#define EBB_HERE \
  ebb::emulation::Place { __func__, __FILE__, __LINE__ }
#define __syncthreads() ebb::emulation::wait_for_block(EBB_HERE)
#define __syncwarp() ebb::emulation::wait_for_warp(EBB_HERE)
#define __shfl_xor_sync(mask, value, bits) \
  ebb::emulation::shuffle(EBB_HERE, mask, value, ebb::emulation::lane() ^ (bits))
#define __shfl_down_sync(mask, value, delta) \
  ebb::emulation::shuffle(EBB_HERE, mask, value, ebb::emulation::lane() + (delta))
#define __shfl_sync(mask, value, from) \
  ebb::emulation::shuffle(EBB_HERE, mask, value, static_cast<int>(from))
#define __ballot_sync(mask, predicate) ebb::emulation::ballot(EBB_HERE, mask, predicate)

inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int atomicCAS(int* at, int expected, int value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*)(P...), cudaFuncAttribute, int value) {
  return value >= 0 && static_cast<size_t>(value) <= ebb::emulation::kMostSharedBytes
             ? cudaSuccess
             : cudaErrorInvalidValue;
}

struct cudaFuncAttributes {};
template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void (*)(P...)) {
  return ebb::emulation::settings().code_status;
}

/// Copies the arguments now; the grid runs in stream order.
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... a) {
  const ebb::emulation::GridShape shape = {config->gridDim, config->blockDim,
                                           config->dynamicSmemBytes};
  if (!ebb::emulation::is_launchable(shape)) {
    return ebb::emulation::set_last_error(cudaErrorInvalidConfiguration);
  }
  if (!ebb::emulation::is_on_current_device(config->stream)) {
    return ebb::emulation::set_last_error(cudaErrorInvalidResourceHandle);
  }
  if (ebb::emulation::is_refused("cudaLaunchKernelEx")) {
    return ebb::emulation::set_last_error(cudaErrorUnknown);
  }
  ebb::emulation::load_kernel(reinterpret_cast<const void*>(kernel));
  ebb::emulation::enqueue(config->stream,
                          [shape, kernel, arguments = std::tuple<P...>(std::forward<A>(a)...)] {
                            ebb::emulation::run_grid(shape, [&] { std::apply(kernel, arguments); });
                          });
  return cudaSuccess;
}

// NOLINTEND
