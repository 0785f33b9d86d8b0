// Runs the blocks of a kernel launch: threads of a block as fibers, blocks on a few OS threads.
//
// Threads of a block run in ascending order until each waits or is done, so what a kernel computes
// does not depend on the machine; set_backwards() turns the order of threads and blocks round, to
// show that results do not depend on it. Where no thread waits, all run on one fiber, without a
// switch.
//
// ThreadSanitizer is told of each fiber and, of order between threads of a block, only what the
// barriers give: a race between them is found. AddressSanitizer is told of each switch.
//
// A run throws DivergentBarrier, out of run_grid(), where threads of a block do not all wait at the
// same barrier, or lanes of a warp not at the same shuffle. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "tests/cuda_emulation/stream_queue.h"

// NOLINTBEGIN: the names are CUDA's
inline thread_local uint3 threadIdx = {}, blockIdx = {};
inline thread_local dim3 blockDim = {}, gridDim = {};
// NOLINTEND

namespace ebb::emulation {

/// Of an H100; what other architectures allow is less.
inline constexpr size_t kMostSharedBytes = 227 * 1024;

struct GridShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
};
bool is_launchable(const GridShape& shape);

/// Calls `run` once for each thread of each block, and returns when all are done.
void run_grid(const GridShape& shape, const std::function<void()>& run);

/// Tests: runs threads and blocks in descending order.
void set_backwards(bool backwards);

class DivergentBarrier : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where a thread waits.
struct Place {
  const char* function = nullptr;
  const char* file = nullptr;
  int line = 0;
};

// ---- What the threads of a block call -----------------------------------------------------------

void wait_for_block(const Place& place);
/// As __syncwarp: what lanes wrote before, all lanes see afterwards.
void wait_for_warp(const Place& place);
int lane();
std::byte* dynamic_shared_memory();

/// Meets the other lanes and returns what lane `from` brought; of a lane that is none, one's own.
/// Orders nothing but this exchange.
uint64_t exchange(const Place& place, unsigned mask, uint64_t value, int from);
/// What a lane brings to a meeting.
struct Brought {
  alignas(16) std::byte bytes[32];

  template <class T>
  static Brought of(const T& value) {
    static_assert(sizeof(T) <= sizeof(Brought));
    Brought result = {};
    std::memcpy(result.bytes, &value, sizeof(T));
    return result;
  }
  template <class T>
  T as() const {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }
};
/// Meets the other lanes; returns what the 32 of them brought, valid until this lane's next
/// meeting.
const Brought* gather(const Place& place, const Brought& brought);

template <class T>
T shuffle(const Place& place, unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(place, mask, bits, from);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

unsigned ballot(const Place& place, unsigned mask, bool predicate);

}  // namespace ebb::emulation
