#include <limits>

#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"
#include "cuda/kernels/sort_indices.h"
#include "cuda/kernels/wide.h"

namespace ebb::cuda {
namespace {

constexpr int kRowWarps = 4;
constexpr int kColumnsALane = 8;  // a warp sums a slice of 256 columns
constexpr int kPart = kWarp;      // rows of dy
constexpr int kBatch = 4;         // rows that a lane reads concurrently
static_assert(kPart % kBatch == 0);

__global__ void find_bad_index(const int32_t* indices, int64_t n, int64_t limit, int64_t ignored,
                               DataError::Kind kind, DataError* error) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t index = indices[i];
  if ((index >= 0 && index < limit) || index == ignored) return;
  if (atomicCAS(&error->kind, DataError::None, kind) != DataError::None) return;
  error->row = i;
  error->value = index;
  error->limit = limit;
}

template <class T>
struct Tables {
  const T* wte;
  const T* wpe;  // null: no position embedding
  const int32_t* tokens;
  const int32_t* positions;
  int64_t num_tokens, num_positions;  // rows of the tables
};

/// Output rows whose index is not in the table become NaN.
template <class T>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    look_up(Tables<T> f, T* y, int64_t num_rows, int64_t num_columns) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_index();
  if (row >= num_rows) return;
  const int64_t token = f.tokens[row], position = f.wpe == nullptr ? 0 : f.positions[row];
  const bool is_there = token >= 0 && token < f.num_tokens &&
                        (f.wpe == nullptr || (position >= 0 && position < f.num_positions));
  for (int64_t i = lane_index(); i < num_columns; i += kWarp) {
    float v = std::numeric_limits<float>::quiet_NaN();
    if (is_there) {
      v = to_float(f.wte[token * num_columns + i]);
      if (f.wpe != nullptr) v += to_float(f.wpe[position * num_columns + i]);
    }
    y[row * num_columns + i] = T(v);
  }
}

/// The arguments of the kernels that sum the gradient of a table.
template <class T>
struct TableGradient {
  SortedRows sorted;
  const T* dy;
  float* parts;  // (ceil(n / kPart), num_columns)
  float* dtable;
  int64_t num_columns, slices;
  Write write;
};

/// Sums of kColumnsALane neighbouring columns of one lane.
template <bool kIsWide>
struct ColumnSums {
  Group<float, kColumnsALane> sums = {};
  const int64_t column, num_columns;

  __device__ ColumnSums(int64_t slice, int64_t columns)
      : column((slice * kWarp + lane_index()) * kColumnsALane), num_columns(columns) {}

  /// Adds `count` rows of an array in order; `row_of(i)` is their number. The reads of a batch run
  /// concurrently.
  template <class T, class RowOf>
  __device__ void add(const T* from, int64_t count, const RowOf& row_of) {
    for (int64_t i = 0; i < count; i += kBatch) {
      Group<T, kColumnsALane> batch[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        batch[j] = {};
        const int64_t row = row_of(i + j);
        if (i + j >= count) continue;
        batch[j] =
            load_group<kIsWide, kColumnsALane>(from + row * num_columns, column, num_columns);
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
#pragma unroll
        for (int k = 0; k < kColumnsALane; ++k) sums.of[k] += to_float(batch[j].of[k]);
      }
    }
  }
  /// Adds the rows of dy at places [begin, end) of the sorted rows. REQUIRES: at most kPart places.
  template <class T>
  __device__ void add_part(const TableGradient<T>& f, int64_t begin, int64_t end) {
    const int64_t place = begin + lane_index();
    const int row = place < end ? f.sorted.rows[place] : 0;
    add(f.dy, end - begin,
        [&](int64_t i) { return __shfl_sync(kAllLanes, row, static_cast<int>(i)); });
  }
};

/// The rows of dy with one index are summed in parts of kPart rows. The part that begins at place p
/// of the sorted rows has the slot p / kPart, except for the first part of each index, which has no
/// slot. So each slot has at most one part. One warp sums a slice of a slot.
template <bool kIsWide, class T>
__global__ void __launch_bounds__(kRowWarps* kWarp, 4) sum_later_parts(TableGradient<T> f) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_index();
  const int64_t slot = warp / f.slices, first = slot * kPart;
  if (first >= f.sorted.n) return;
  const int64_t index = f.sorted.indices[first];
  if (index >= f.sorted.num_indices) return;
  const int64_t all = f.sorted.begins[index], end = f.sorted.begins[index + 1];
  const int64_t begin = all + ceil_div(first - all, kPart) * kPart;
  if (begin == all || begin >= end) return;
  ColumnSums<kIsWide> sum(warp % f.slices, f.num_columns);
  sum.add_part(f, begin, begin + kPart < end ? begin + kPart : end);
  store_group<kIsWide>(f.parts + slot * f.num_columns, sum.column, f.num_columns, sum.sums);
}

/// One warp sums a slice of one row of the table: the first part of its rows, then the other parts.
template <bool kIsWide, class T>
__global__ void __launch_bounds__(kRowWarps* kWarp, 4) sum_parts(TableGradient<T> f) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_index();
  const int64_t index = warp / f.slices;
  if (index >= f.sorted.num_indices) return;
  const int64_t begin = f.sorted.begins[index], end = f.sorted.begins[index + 1];
  if (begin == end && f.write == Write::Add) return;
  ColumnSums<kIsWide> sum(warp % f.slices, f.num_columns);
  sum.add_part(f, begin, begin + kPart < end ? begin + kPart : end);
  const int64_t first_slot = begin / kPart + 1;
  sum.add(f.parts, ceil_div(end - begin, kPart) - 1, [&](int64_t i) { return first_slot + i; });
  float* const to = f.dtable + index * f.num_columns;
  if (f.write == Write::Add) {
    const auto old = load_group<kIsWide, kColumnsALane>(to, sum.column, f.num_columns);
#pragma unroll
    for (int k = 0; k < kColumnsALane; ++k) sum.sums.of[k] = old.of[k] + sum.sums.of[k];
  }
  store_group<kIsWide>(to, sum.column, f.num_columns, sum.sums);
}

template <bool kIsWide, class T>
void sum_gradient(cudaStream_t stream, const TableGradient<T>& f) {
  const auto blocks = [&](int64_t rows) { return blocks_for(rows * f.slices, kRowWarps); };
  launch("embedding_backward", stream, blocks(ceil_div(f.sorted.n, kPart)), kRowWarps * kWarp, 0,
         sum_later_parts<kIsWide, T>, f);
  launch("embedding_backward", stream, blocks(f.sorted.num_indices), kRowWarps * kWarp, 0,
         sum_parts<kIsWide, T>, f);
}

/// The workspace begins with the parts, which are aligned for wide accesses.
int64_t num_part_floats(const EmbeddingBackward& f) {
  return ceil_div(f.dy.rows(), kPart) * f.dy.columns();
}

}  // namespace

void check_indices(const GpuLaunch& gpu, const Tensor& indices, int64_t limit, int64_t ignored,
                   DataError::Kind kind) {
  const int64_t n = indices.num_elements();
  launch("check_indices", gpu.stream, blocks_for(n, kElementThreads), kElementThreads, 0,
         find_bad_index, indices.as<int32_t>(), n, limit, ignored, kind, gpu.data_error);
}

}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void EmbeddingForward::run(const GpuLaunch& gpu) const {
  check_indices(gpu, tokens, wte.rows(), 0, DataError::Token);
  if (wpe) check_indices(gpu, positions, wpe.rows(), 0, DataError::Token);
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Tables<T> tables{wte.as<T>(),          wpe ? wpe.as<T>() : nullptr,
                           tokens.as<int32_t>(), wpe ? positions.as<int32_t>() : nullptr,
                           wte.rows(),           wpe ? wpe.rows() : 0};
    launch("embedding_forward", gpu.stream, blocks_for(y.rows(), kRowWarps), kRowWarps * kWarp, 0,
           look_up<T>, tables, y.as<T>(), y.rows(), y.columns());
  });
}

size_t EmbeddingBackward::workspace_bytes(const GpuLaunch&) const {
  return static_cast<size_t>(num_part_floats(*this)) * sizeof(float) +
         static_cast<size_t>(sort_rows_scratch(dy.rows(), dtable.rows())) * sizeof(int32_t);
}

void EmbeddingBackward::run(const GpuLaunch& gpu) const {
  check_indices(gpu, indices, dtable.rows(), 0, DataError::Token);
  auto* const parts = gpu.scratch<float>(workspace_bytes(gpu));
  auto* const scratch = reinterpret_cast<int32_t*>(parts + num_part_floats(*this));
  const SortedRows sorted =
      sort_rows(gpu.stream, indices.as<int32_t>(), indices.num_elements(), dtable.rows(), scratch);
  const bool is_wide = dy.columns() % kColumnsALane == 0 && is_aligned(dy.data, 16) &&
                       is_aligned(dtable.data, 16) && is_aligned(parts, 16);
  with_float_type(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const TableGradient<T> f{sorted,
                             dy.as<T>(),
                             parts,
                             dtable.as<float>(),
                             dtable.columns(),
                             ceil_div(dtable.columns(), kColumnsALane * kWarp),
                             write};
    is_wide ? sum_gradient<true>(gpu.stream, f) : sum_gradient<false>(gpu.stream, f);
  });
}

}  // namespace ebb
