// Division of the work of host kernels into tasks, and their scratch memory.
//
// Results never depend on the thread that runs a task. A task only uses the scratch memory of its
// slot. Thread-safety: the functions as ThreadTeam; one thread uses a Scratch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/errors.h"
#include "device/tensor.h"
#include "device/workspace.h"
#include "system/parallel_loop.h"

namespace ebb {

constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// Runs body(task, slot) for every task; no two bodies run with the same slot at the same time.
/// slot < team.num_threads(). Threads take tasks in order, so long tasks should come first.
template <class Body>
void for_each_scratch(ThreadTeam& team, int64_t num_tasks, const Body& body) {
  std::atomic<int64_t> next{0};
  const int64_t num_scratches = std::min<int64_t>(team.num_threads(), num_tasks);
  team.for_each(num_scratches, [&](int64_t scratch) {
    for (int64_t task = next++; task < num_tasks; task = next++) body(task, scratch);
  });
}

/// A row of a tensor as a matrix. REQUIRES: T is the tensor's element type.
template <class T>
T* row_of(const Tensor& tensor, int64_t row) {
  return tensor.as<T>() + row * tensor.columns();
}

/// Calls body(zero, row) for each row of a tensor, where `zero` has its element type. `grain`: as
/// for for_each_row(). REQUIRES: is_float(tensor.dtype).
template <class Body>
void for_each_float_row(ThreadTeam& team, const Tensor& tensor, int64_t grain, const Body& body) {
  with_float_type(tensor.dtype, [&](auto zero) {
    for_each_row(team, tensor.rows(), grain, [&](int64_t row) { body(zero, row); });
  });
}

/// The number of rows that have about `num_elements` elements.
constexpr int64_t rows_of_elements(int64_t num_elements, int64_t num_columns) {
  return std::max<int64_t>(1, num_elements / std::max<int64_t>(1, num_columns));
}

/// Allocates parts of the workspace one after the other, each aligned to a cache line.
class Scratch {
 public:
  explicit Scratch(const Workspace& workspace) : workspace_(workspace) {}

  template <class T>
  T* take(int64_t count) {
    const size_t bytes = bytes_of<T>(count);
    EBB_CHECK(used_ + bytes <= workspace_.bytes, "a kernel's workspace was not reserved");
    std::byte* piece = workspace_.data + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(piece);
  }

  template <class T>
  static size_t bytes_of(int64_t count) {
    return static_cast<size_t>(round_up(count * static_cast<int64_t>(sizeof(T)), 64));
  }

 private:
  const Workspace& workspace_;
  size_t used_ = 0;
};

}  // namespace ebb
