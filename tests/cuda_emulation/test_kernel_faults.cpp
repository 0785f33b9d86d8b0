// Planted faults that the emulation must find. Each fault is in a kernel of this file, which is
// launched like a real kernel.
#include <cuda_runtime.h>
#include <device_language.h>

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

/// One thread copies. The shifts are added to its addresses.
__global__ void copy_four(float* to, const float* from, int to_shift, int from_shift) {
  struct alignas(16) Four {
    float of[4];
  };
  if (threadIdx.x == 3) {
    store_wide(as_wide<Four>(to + to_shift), *as_wide<const Four>(from + from_shift));
  }
}

__global__ void load_rows(uint32_t* out, const uint16_t* rows, bool transposed) {
  uint32_t of[4];
  // Of matrix m, row r begins at 8 (8 m + r).
  const uint16_t* const mine = rows + 8 * emulation::lane();
  transposed ? load_matrices<true>(of, mine) : load_matrices<false>(of, mine);
  if (threadIdx.x >= 32) return;
  for (int m = 0; m < 4; ++m) out[32 * m + emulation::lane()] = of[m];
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

TEST(EmulatedFaults, AWideAccessThatIsNotAlignedIsAnError) {
  alignas(16) float from[8] = {1, 2, 3, 4, 5, 6, 7, 8}, to[8] = {};
  const auto copy = [&](int to_shift, int from_shift) {
    run(1, copy_four, static_cast<float*>(to), static_cast<const float*>(from), to_shift,
        from_shift);
  };
  copy(4, 0);
  EXPECT_EQ(to[7], 4);
  for (int i = 1; i < 4; ++i) {
    EXPECT_THROW(copy(0, i), emulation::MisalignedAccess);
    EXPECT_THROW(copy(i, 0), emulation::MisalignedAccess);
  }
}

TEST(EmulatedFaults, ARowOfAMatrixThatIsNotAlignedIsAnError) {
  alignas(16) uint16_t rows[8 * 32 + 4] = {};
  uint32_t out[128];
  run(1, load_rows, static_cast<uint32_t*>(out), static_cast<const uint16_t*>(rows), false);
  EXPECT_THROW(
      run(1, load_rows, static_cast<uint32_t*>(out), static_cast<const uint16_t*>(rows + 4), false),
      emulation::MisalignedAccess);
}

// The layout is that of "Warp-level matrix load instruction: ldmatrix" in NVIDIA's PTX ISA.
TEST(EmulatedMatrices, LanesGetTheElementsThatThePtxIsaNames) {
  alignas(16) uint16_t rows[8 * 32];
  for (int m = 0; m < 4; ++m) {
    for (int r = 0; r < 8; ++r) {
      for (int c = 0; c < 8; ++c)
        rows[8 * (8 * m + r) + c] = static_cast<uint16_t>(100 * m + 10 * r + c);
    }
  }
  uint32_t out[128];
  run(1, load_rows, static_cast<uint32_t*>(out), static_cast<const uint16_t*>(rows), false);
  // A lane has two neighbours of a row, and four have the whole row.
  EXPECT_EQ(out[0], 0u | 1u << 16);
  EXPECT_EQ(out[1], 2u | 3u << 16);
  EXPECT_EQ(out[4], 10u | 11u << 16);
  EXPECT_EQ(out[31], 76u | 77u << 16);
  EXPECT_EQ(out[3 * 32 + 6], 314u | 315u << 16);
  run(1, load_rows, static_cast<uint32_t*>(out), static_cast<const uint16_t*>(rows), true);
  // A lane has two neighbours of a column, and four have the whole column.
  EXPECT_EQ(out[0], 0u | 10u << 16);
  EXPECT_EQ(out[1], 20u | 30u << 16);
  EXPECT_EQ(out[4], 1u | 11u << 16);
  EXPECT_EQ(out[31], 67u | 77u << 16);
  EXPECT_EQ(out[3 * 32 + 6], 341u | 351u << 16);
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
