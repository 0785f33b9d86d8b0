// Runs the blocks of a kernel launch: threads of a block as fibers, blocks on a few OS threads.
//
// The threads of a block run in ascending order, each until it waits or is done. So the result of a
// kernel does not depend on the machine. set_backwards() reverses the order of threads and blocks,
// to show that results do not depend on the order. If no thread waits, all threads run on one
// fiber, without switches.
//
// ThreadSanitizer sees each fiber as a thread, and only barriers as synchronization between threads
// of a block, so it finds races between them. AddressSanitizer sees each switch.
//
// run_grid() throws DivergentBarrier if the threads of a block do not all wait at the same barrier,
// or the lanes of a warp not at the same shuffle; and MisalignedAccess. Thread-safe.
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

/// Shared memory of a block on an H100. Other architectures have less.
inline constexpr size_t kMostSharedBytes = 227 * 1024;

struct GridShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
};
bool is_launchable(const GridShape& shape);

/// Calls `run` once for each thread of each block, with threadIdx and blockIdx set, and returns
/// when all are done.
void run_grid(const GridShape& shape, const std::function<void()>& run);

/// For tests: true runs threads and blocks in descending order.
void set_backwards(bool backwards);

class DivergentBarrier : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A kernel accessed several elements together at an address that is not aligned for it. A GPU then
/// faults, and the host does not.
class MisalignedAccess : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The place in the source where a thread waits.
struct Place {
  const char* function = nullptr;
  const char* file = nullptr;
  int line = 0;
};

// ---- What the threads of a block call -----------------------------------------------------------

void wait_for_block(const Place& place);
/// As __syncwarp: all lanes see the earlier writes of all lanes.
void wait_for_warp(const Place& place);
int lane();
std::byte* dynamic_shared_memory();
/// Throws MisalignedAccess if the address is no multiple of `alignment`.
void check_alignment(const void* address, size_t alignment);

/// Waits for the other lanes and returns the value of lane `from`, or the lane's own value if there
/// is no such lane. This exchange is the only synchronization.
uint64_t exchange(const Place& place, unsigned mask, uint64_t value, int from);
/// The value that a lane contributes to an exchange.
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
/// Waits for the other lanes and returns the values of all 32 lanes, which are valid until this
/// lane's next exchange.
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
