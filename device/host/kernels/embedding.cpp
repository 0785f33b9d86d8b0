#include <hwy/cache_control.h>

#include <string>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

#ifndef EBB_HOST_KERNELS_EMBEDDING_ARGUMENTS_
#define EBB_HOST_KERNELS_EMBEDDING_ARGUMENTS_
namespace ebb {
namespace {

struct Lookup {
  DType dtype;
  int64_t num_rows, num_columns;
  void* y;
  const int32_t *tokens, *positions;  // null positions: only tokens
  const void *wte, *wpe;
  int64_t num_tokens, num_positions;  // rows of the tables
};

struct LookupGradient {
  DType dtype;
  int64_t num_rows, num_columns, table_rows;
  float* dtable;
  const void* dy;
  const int32_t* indices;
  Write write;
};

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void look_up_row(const Lookup& f, int64_t row) {
  const int64_t n = f.num_columns;
  const T* token = static_cast<const T*>(f.wte) + f.tokens[row] * n;
  const T* position =
      f.positions == nullptr ? nullptr : static_cast<const T*>(f.wpe) + f.positions[row] * n;
  T* y = static_cast<T*>(f.y) + row * n;
  for (int64_t i = 0; i < n; i += kWide) {
    Wide v = load_up_to(token + i, n - i);
    if (position != nullptr) v = v + load_up_to(position + i, n - i);
    store_up_to(y + i, v, n - i);
  }
}

void look_up(const Lookup& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, 32, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) look_up_row<decltype(zero)>(f, row);
    });
  });
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
void sum_rows(const LookupGradient& f, int64_t table_row, const int32_t* rows, int64_t count) {
  const int64_t n = f.num_columns;
  const T* dy = static_cast<const T*>(f.dy);
  float* to = f.dtable + table_row * n;
  for (int64_t i = 0; i < n; i += kWide) {
    Wide sum = broadcast(0.0f);
    for (int64_t r = 0; r < count; ++r) sum = sum + load_up_to(dy + rows[r] * n + i, n - i);
    if (f.write == Write::Add) sum = load_up_to(to + i, n - i) + sum;
    store_up_to(to + i, sum, n - i);
  }
}

/// Sorts the rows by index, with a stable counting sort. ends[v] is the end of the rows with index
/// v in `rows`.
void sort_by_index(const LookupGradient& f, int32_t* ends, int32_t* rows) {
  std::fill_n(ends, f.table_rows, 0);
  for (int64_t i = 0; i < f.num_rows; ++i) ++ends[f.indices[i]];
  int32_t begin = 0;
  for (int64_t v = 0; v < f.table_rows; ++v) {
    const int32_t count = ends[v];
    ends[v] = begin;
    begin += count;
  }
  for (int64_t i = 0; i < f.num_rows; ++i) rows[ends[f.indices[i]]++] = static_cast<int32_t>(i);
}

void look_up_gradient(const LookupGradient& f, ThreadTeam& team, const Workspace& workspace) {
  Scratch scratch(workspace);
  int32_t* ends = scratch.take<int32_t>(f.table_rows);
  int32_t* rows = scratch.take<int32_t>(f.num_rows);
  sort_by_index(f, ends, rows);
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.table_rows, 16, [&](int64_t first, int64_t last) {
      for (int64_t v = first; v < last; ++v) {
        const int32_t begin = v == 0 ? 0 : ends[v - 1];
        if (begin < ends[v]) {
          sum_rows<decltype(zero)>(f, v, rows + begin, ends[v] - begin);
        } else if (f.write == Write::Store) {
          stream_zeros(f.dtable + v * f.num_columns, f.num_columns);
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
void check_indices(const int32_t* indices, int64_t n, int64_t table_rows, const char* kernel) {
  for (int64_t i = 0; i < n; ++i) {
    EBB_CHECK(indices[i] >= 0 && indices[i] < table_rows,
              std::string(kernel) + ": index " + std::to_string(indices[i]) + " at row " +
                  std::to_string(i) + " is outside the table of " + std::to_string(table_rows) +
                  " rows");
  }
}

}  // namespace

void EmbeddingForward::run(const HostLaunch& host) const {
  const Lookup f{y.dtype,
                 y.rows(),
                 y.columns(),
                 y.data,
                 tokens.as<int32_t>(),
                 wpe ? positions.as<int32_t>() : nullptr,
                 wte.data,
                 wpe.data,
                 wte.rows(),
                 wpe ? wpe.rows() : 0};
  check_indices(f.tokens, f.num_rows, f.num_tokens, "embedding_forward");
  if (f.positions != nullptr) {
    check_indices(f.positions, f.num_rows, f.num_positions, "embedding_forward");
  }
  HWY_DYNAMIC_DISPATCH(look_up)(f, host.team);
}

size_t EmbeddingBackward::workspace_bytes(const HostLaunch&) const {
  return Scratch::bytes_of<int32_t>(dtable.rows()) + Scratch::bytes_of<int32_t>(dy.rows());
}

void EmbeddingBackward::run(const HostLaunch& host) const {
  const LookupGradient f{dy.dtype,           dy.rows(), dy.columns(),          dtable.rows(),
                         dtable.as<float>(), dy.data,   indices.as<int32_t>(), write};
  check_indices(f.indices, f.num_rows, f.table_rows, "embedding_backward");
  HWY_DYNAMIC_DISPATCH(look_up_gradient)(f, host.team, host.workspace);
}

}  // namespace ebb
#endif
