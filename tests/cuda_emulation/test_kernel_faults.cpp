// Planted faults that the emulation must find. Each fault is in a kernel of this file, which is
// launched like a real kernel.
#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "tests/cuda_emulation/grid.h"
#include "tests/kernels/harness.h"

namespace ebb::test {
namespace {

constexpr unsigned kThreads = 64;

__global__ void reverse(int* out, bool with_barrier) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (with_barrier) __syncthreads();
  out[blockIdx.x * kThreads + threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

/// A thread reads values that depend on the order of threads. Not run under ThreadSanitizer.
[[maybe_unused]] __global__ void reverse_unguarded(int* out, int first) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = first + static_cast<int>(threadIdx.x);
  out[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

__global__ void wait_in_part() {
  if (threadIdx.x < kThreads / 2 + 3) __syncthreads();
}

__global__ void wait_apart() {
  if (threadIdx.x < kThreads / 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void shuffle_in_part(int* out) {
  if (threadIdx.x % 32 > 3) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
}

/// Runs the kernel in this thread, in the way of a stream.
template <class... P, class... A>
void run(unsigned blocks, void (*kernel)(P...), A... arguments) {
  emulation::run_grid({dim3(blocks), dim3(kThreads), 0}, [&] { kernel(arguments...); });
}

std::string refusal(void (*kernel)()) {
  try {
    run(1, kernel);
  } catch (const emulation::DivergentBarrier& error) {
    return error.what();
  }
  return "";
}

TEST(EmulatedFaults, WithoutOneAllIsWell) {
  std::vector<int> out(10 * kThreads);
  run(10, reverse, out.data(), true);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], static_cast<int>(kThreads - 1 - i % kThreads));
  }
}

TEST(EmulatedFaults, ABarrierThatSomeLeaveOutNamesTheKernel) {
  EXPECT_NE(refusal(wait_in_part).find("wait_in_part"), std::string::npos);
  EXPECT_NE(refusal(wait_in_part).find("is done"), std::string::npos);
  EXPECT_NE(refusal(wait_apart).find("wait_apart"), std::string::npos);
}

TEST(EmulatedFaults, AShuffleThatSomeLeaveOutIsAnError) {
  std::vector<int> out(kThreads);
  EXPECT_THROW(run(1, shuffle_in_part, out.data()), emulation::DivergentBarrier);
}

/// The fault is found in every build, by the order of threads. `first` differs between runs,
/// because otherwise the values of the previous run would be right.
#if !defined(__SANITIZE_THREAD__)
TEST(EmulatedFaults, ARaceBetweenThreadsDependsOnTheirOrder) {
  std::vector<int> forwards(kThreads), backwards(kThreads);
  run(1, reverse_unguarded, forwards.data(), 1000);
  emulation::set_backwards(true);
  run(1, reverse_unguarded, backwards.data(), 2000);
  emulation::set_backwards(false);
  for (int& x : backwards) x -= 1000;
  EXPECT_NE(forwards, backwards);
}
#endif

#if defined(__SANITIZE_THREAD__)
TEST(EmulatedFaultsDeathTest, ARaceBetweenThreadsOfABlockIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<int> out(kThreads);
  EXPECT_EXIT(
      {
        run(1, reverse, out.data(), false);
        std::exit(0);  // the sanitizer replaces this exit code by its own
      },
      testing::ExitedWithCode(66), "ThreadSanitizer: data race");
}
#endif

#if defined(__SANITIZE_ADDRESS__)
TEST(EmulatedFaultsDeathTest, AnIndexOutOfBoundsIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<int> out(kThreads);
  EXPECT_DEATH(run(2, reverse, out.data(), true), "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace ebb::test
