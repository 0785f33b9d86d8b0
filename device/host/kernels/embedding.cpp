#include <hwy/cache_control.h>

#include <algorithm>
#include <span>
#include <string>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void look_up_row(const EmbeddingForward& f, int64_t row) {
  const int64_t n = f.y.columns();
  const T* token = row_of<T>(f.wte, f.tokens.as<int32_t>()[row]);
  const T* position = f.wpe ? row_of<T>(f.wpe, f.positions.as<int32_t>()[row]) : nullptr;
  T* y = row_of<T>(f.y, row);
  for (int64_t i = 0; i < n; i += kWide) {
    Wide v = load_up_to(token + i, n - i);
    if (position != nullptr) v = v + load_up_to(position + i, n - i);
    store_up_to(y + i, v, n - i);
  }
}

void look_up(const EmbeddingForward& f, ThreadTeam& team) {
  for_each_float_row(team, f.y, 32,
                     [&](auto zero, int64_t row) { look_up_row<decltype(zero)>(f, row); });
}

/// Writes zeros past the caches: most rows of a vocabulary get no gradient, so the rows are neither
/// read nor written again soon. The caller calls hwy::FlushStream() afterwards.
void stream_zeros(float* to, int64_t n) {
  alignas(64) static constexpr float kLine[16] = {};
  int64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(to + i) % sizeof(kLine) != 0; ++i) to[i] = 0.0f;
  for (; i + 16 <= n; i += 16) stream_lines(to + i, kLine, sizeof(kLine));
  for (; i < n; ++i) to[i] = 0.0f;
}

/// Sums the rows of dy that `rows` lists, in this order, into one row of the table.
template <class T>
void sum_rows(const EmbeddingBackward& f, int64_t table_row, const int32_t* rows, int64_t count) {
  const int64_t n = f.dy.columns();
  const T* dy = f.dy.as<T>();
  float* to = row_of<float>(f.dtable, table_row);
  for (int64_t i = 0; i < n; i += kWide) {
    Wide sum = broadcast(0.0f);
    for (int64_t r = 0; r < count; ++r) sum = sum + load_up_to(dy + rows[r] * n + i, n - i);
    write_up_to(to + i, sum, n - i, f.write);
  }
}

/// Sorts the rows by index, with a stable counting sort. ends[v] is the end of the rows with index
/// v in `rows`.
void sort_by_index(std::span<const int32_t> indices, std::span<int32_t> ends, int32_t* rows) {
  std::ranges::fill(ends, 0);
  for (const int32_t index : indices) ++ends[index];
  int32_t begin = 0;
  for (int32_t& end : ends) {
    const int32_t count = end;
    end = begin;
    begin += count;
  }
  for (size_t i = 0; i < indices.size(); ++i) rows[ends[indices[i]]++] = static_cast<int32_t>(i);
}

void look_up_gradient(const EmbeddingBackward& f, ThreadTeam& team, const Workspace& workspace) {
  const int64_t table_rows = f.dtable.rows(), columns = f.dtable.columns();
  Scratch scratch(workspace);
  int32_t* ends = scratch.take<int32_t>(table_rows);
  int32_t* rows = scratch.take<int32_t>(f.dy.rows());
  sort_by_index(f.indices.span<int32_t>(), {ends, static_cast<size_t>(table_rows)}, rows);
  with_float_type(f.dy.dtype, [&](auto zero) {
    for_each_range(team, table_rows, 16, [&](int64_t first, int64_t last) {
      for (int64_t v = first; v < last; ++v) {
        const int32_t begin = v == 0 ? 0 : ends[v - 1];
        if (begin < ends[v]) {
          sum_rows<decltype(zero)>(f, v, rows + begin, ends[v] - begin);
        } else if (f.write == Write::Store) {
          stream_zeros(row_of<float>(f.dtable, v), columns);
        }
      }
      hwy::FlushStream();
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(look_up);
HWY_EXPORT(look_up_gradient);

namespace {

// Indices come from data, so an index outside its table must be an error and not an invalid read.
void check_indices(const Tensor& indices, int64_t table_rows, const char* kernel) {
  const auto values = indices.span<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    EBB_CHECK(values[i] >= 0 && values[i] < table_rows,
              std::string(kernel) + ": index " + std::to_string(values[i]) + " at row " +
                  std::to_string(i) + " is outside the table of " + std::to_string(table_rows) +
                  " rows");
  }
}

}  // namespace

void EmbeddingForward::run(const HostLaunch& host) const {
  check_indices(tokens, wte.rows(), "embedding_forward");
  if (wpe) check_indices(positions, wpe.rows(), "embedding_forward");
  HWY_DYNAMIC_DISPATCH(look_up)(*this, host.team);
}

size_t EmbeddingBackward::workspace_bytes(const HostLaunch&) const {
  return Scratch::bytes_of<int32_t>(dtable.rows()) + Scratch::bytes_of<int32_t>(dy.rows());
}

void EmbeddingBackward::run(const HostLaunch& host) const {
  check_indices(indices, dtable.rows(), "embedding_backward");
  HWY_DYNAMIC_DISPATCH(look_up_gradient)(*this, host.team, host.workspace);
}

}  // namespace ebb
#endif
