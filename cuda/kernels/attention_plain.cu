// Attention in fp32 arithmetic. A block has 16 x 16 threads. Each thread computes kTile / 16 rows
// and kTile / 16 columns of a tile of scores.
#include <limits>

#include "cuda/kernels/attention.h"

namespace ebb::cuda {
namespace {

constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;
constexpr float kLowest = -std::numeric_limits<float>::max();

__device__ __forceinline__ int row_index() { return static_cast<int>(threadIdx.x) / kSide; }
__device__ __forceinline__ int column_index() { return static_cast<int>(threadIdx.x) % kSide; }

/// Reduces x over the sixteen threads of a row; all of them get the result.
template <class Fold>
__device__ __forceinline__ float fold_row(float x, const Fold& fold) {
  for (int bits = kSide / 2; bits > 0; bits /= 2) {
    x = fold(x, __shfl_xor_sync(kAllLanes, x, bits));
  }
  return x;
}

/// A (kTile, size) matrix in shared memory, with an odd stride.
struct Matrix {
  float* at;
  int stride;
  __device__ float* row(int i) const { return at + i * stride; }
};

/// Loads rows [first, first + kTile) of a head; rows after the last token are 0.
template <int kTile, class T>
__device__ void load_rows(const Matrix& to, const T* from, int64_t stride, int first, int size,
                          int num_tokens, float scale) {
  for (int r = warp_index(); r < kTile; r += kThreads / kWarp) {
    const T* row = from + (first + r) * stride;
    for (int c = lane_index(); c < size; c += kWarp) {
      to.row(r)[c] = first + r < num_tokens ? to_float(row[c]) * scale : 0.0f;
    }
  }
}

template <int kTile>
struct Shared {
  Matrix a, b, c, d;         // (kTile, size)
  Matrix weights, dscores;   // (kTile, kTile)
  float *log_sums, *inners;  // (kTile)

  __device__ explicit Shared(int size) {
    float* next = shared_memory<float>();
    const int stride = size | 1;
    for (Matrix* m : {&a, &b, &c, &d}) {
      *m = {next, stride};
      next += kTile * stride;
    }
    for (Matrix* m : {&weights, &dscores}) {
      *m = {next, kTile + 1};
      next += kTile * (kTile + 1);
    }
    log_sums = next;
    inners = next + kTile;
  }
  static size_t bytes(int64_t size) {
    const int64_t floats = 4 * kTile * (size | 1) + 2 * kTile * (kTile + 1) + 2 * kTile;
    return static_cast<size_t>(floats) * sizeof(float);
  }
};

/// A thread's part of a tile of scalar products of rows of x and rows of y.
template <int kPart>
__device__ void multiply_rows(float (&to)[kPart][kPart], const Matrix& x, const Matrix& y,
                              int size) {
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
#pragma unroll
    for (int j = 0; j < kPart; ++j) to[i][j] = 0.0f;
  }
  for (int d = 0; d < size; ++d) {
    float yd[kPart];
#pragma unroll
    for (int j = 0; j < kPart; ++j) yd[j] = y.row(column_index() + j * kSide)[d];
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      const float xd = x.row(row_index() + i * kSide)[d];
#pragma unroll
      for (int j = 0; j < kPart; ++j) to[i][j] = fmaf(xd, yd[j], to[i][j]);
    }
  }
}

/// to += weights (kTile, kTile) times rows of values. A value with weight 0 is skipped and not
/// multiplied, so that a NaN in a hidden token has no effect.
template <int kTile, int kColumns>
__device__ void add_weighted(float (&to)[kTile / kSide][kColumns], const Matrix& weights,
                             const Matrix& values, int size) {
#pragma unroll
  for (int i = 0; i < kTile / kSide; ++i) {
    const float* row = weights.row(row_index() + i * kSide);
    for (int j = 0; j < kTile; ++j) {
      const float weight = row[j];
      if (weight == 0.0f) continue;
#pragma unroll
      for (int k = 0; k < kColumns; ++k) {
        const int column = column_index() + k * kSide;
        if (column < size) to[i][k] = fmaf(weight, values.row(j)[column], to[i][k]);
      }
    }
  }
}

template <int kTile, int kColumns, class T>
__device__ void store_rows(T* to, int64_t stride, int first, int size, int num_tokens,
                           const float (&from)[kTile / kSide][kColumns],
                           const float (&factor)[kTile / kSide]) {
#pragma unroll
  for (int i = 0; i < kTile / kSide; ++i) {
    const int token = first + row_index() + i * kSide;
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      const int column = column_index() + k * kSide;
      if (token < num_tokens && column < size) {
        to[token * stride + column] = T(from[i][k] * factor[i]);
      }
    }
  }
}

template <int kTile, int kColumns, class T>
__global__ void __launch_bounds__(kThreads) attend(AttentionOperands f) {
  constexpr int kPart = kTile / kSide;
  const Head<T> head(f, blockIdx.y);
  const Shared<kTile> shared(head.size());
  const int n = head.num_tokens(), size = head.size();
  // The last queries see the most keys, so they are computed first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int last = first + kTile <= n ? first + kTile - 1 : n - 1;
  load_rows<kTile>(shared.a, head.part(0), head.qkv_stride(), first, size, n, f.scale);
  float o[kPart][kColumns] = {}, top[kPart], sum[kPart] = {};
  int start[kPart];
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    const int query = first + row_index() + i * kSide;
    top[i] = kLowest;
    start[i] = query < n ? head.start(query) : -1;
  }
  for (int key = head.first_key(first) / kTile * kTile; key < n; key += kTile) {
    if (head.is_past_keys(last, key)) break;
    __syncthreads();
    load_rows<kTile>(shared.b, head.part(1), head.qkv_stride(), key, size, n, 1.0f);
    load_rows<kTile>(shared.c, head.part(2), head.qkv_stride(), key, size, n, 1.0f);
    __syncthreads();
    float s[kPart][kPart];
    multiply_rows(s, shared.a, shared.b, size);
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      const int row = row_index() + i * kSide;
      float highest = top[i];
#pragma unroll
      for (int j = 0; j < kPart; ++j) {
        const int k = key + column_index() + j * kSide;
        const bool seen =
            k < n && start[i] >= 0 && head.sees(first + row, start[i], k, head.start(k));
        if (!seen) s[i][j] = -std::numeric_limits<float>::infinity();
        highest = fmaxf(highest, s[i][j]);
      }
      highest = fold_row(highest, [](float a, float b) { return fmaxf(a, b); });
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < kPart; ++j) {
        const float weight = expf(s[i][j] - highest);
        const int column = column_index() + j * kSide;
        shared.weights.row(row)[column] = weight * head.kept(first + row, key + column);
        total += weight;
      }
      const float factor = expf(top[i] - highest);
      sum[i] = fmaf(sum[i], factor, fold_row(total, [](float a, float b) { return a + b; }));
      top[i] = highest;
#pragma unroll
      for (int k = 0; k < kColumns; ++k) o[i][k] *= factor;
    }
    __syncthreads();
    add_weighted<kTile>(o, shared.weights, shared.c, size);
  }
  float factor[kPart];
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    const int query = first + row_index() + i * kSide;
    factor[i] = 1.0f / sum[i];
    if (query < n && column_index() == 0) head.log_sum_exp()[query] = top[i] + logf(sum[i]);
  }
  store_rows<kTile>(head.out(), head.out_stride(), first, size, n, o, factor);
}

/// Computes the weights of a tile of scores, (rows of x) by (rows of y), and their gradients, and
/// stores both in shared memory. rows_are_queries: x are queries and y keys; otherwise x are keys
/// and y queries.
template <int kTile, class T>
__device__ void differentiate(const Head<T>& head, const Shared<kTile>& shared, const Matrix& x,
                              const Matrix& y, const Matrix& dx, const Matrix& dy, int first_row,
                              int first_column, bool rows_are_queries) {
  constexpr int kPart = kTile / kSide;
  const int n = head.num_tokens();
  float s[kPart][kPart], ds[kPart][kPart];
  multiply_rows(s, x, y, head.size());
  multiply_rows(ds, dx, dy, head.size());
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
#pragma unroll
    for (int j = 0; j < kPart; ++j) {
      const int row = row_index() + i * kSide, column = column_index() + j * kSide;
      const int q = rows_are_queries ? row : column;
      const int query = rows_are_queries ? first_row + row : first_column + column;
      const int key = rows_are_queries ? first_column + column : first_row + row;
      float weight = 0.0f, dscore = 0.0f;
      if (query < n && key < n && head.sees(query, head.start(query), key, head.start(key))) {
        const float kept = head.kept(query, key);
        weight = expf(s[i][j] - shared.log_sums[q]);
        dscore = weight * (ds[i][j] * kept - shared.inners[q]);
        weight *= kept;
      }
      shared.weights.row(row)[column] = weight;
      shared.dscores.row(row)[column] = dscore;
    }
  }
}

template <int kTile, class T>
__device__ void load_statistics(const Head<T>& head, const Shared<kTile>& shared, int first) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile; i += kThreads) {
    const bool is_there = first + i < head.num_tokens();
    shared.log_sums[i] = is_there ? head.log_sum_exp()[first + i] : 0.0f;
    shared.inners[i] = is_there ? head.inner()[first + i] : 0.0f;
  }
}

template <int kTile, int kColumns, class T>
__global__ void __launch_bounds__(kThreads, 2) differentiate_queries(AttentionOperands f) {
  constexpr int kPart = kTile / kSide;
  const Head<T> head(f, blockIdx.y);
  const Shared<kTile> shared(head.size());
  const int n = head.num_tokens(), size = head.size();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int last = first + kTile <= n ? first + kTile - 1 : n - 1;
  load_rows<kTile>(shared.a, head.part(0), head.qkv_stride(), first, size, n, f.scale);
  load_rows<kTile>(shared.b, head.dout(), head.out_stride(), first, size, n, 1.0f);
  load_statistics(head, shared, first);
  float dq[kPart][kColumns] = {}, factor[kPart];
  for (float& x : factor) x = f.scale;
  for (int key = head.first_key(first) / kTile * kTile; key < n; key += kTile) {
    if (head.is_past_keys(last, key)) break;
    __syncthreads();
    load_rows<kTile>(shared.c, head.part(1), head.qkv_stride(), key, size, n, 1.0f);
    load_rows<kTile>(shared.d, head.part(2), head.qkv_stride(), key, size, n, 1.0f);
    __syncthreads();
    differentiate(head, shared, shared.a, shared.c, shared.b, shared.d, first, key, true);
    __syncthreads();
    add_weighted<kTile>(dq, shared.dscores, shared.c, size);
  }
  store_rows<kTile>(head.gradient(0), head.qkv_stride(), first, size, n, dq, factor);
}

/// Adds the contributions of all heads of queries that read these keys, one after the other.
template <int kTile, int kColumns, class T>
__global__ void __launch_bounds__(kThreads) differentiate_keys(AttentionOperands f) {
  constexpr int kPart = kTile / kSide;
  const int group = static_cast<int>(f.num_heads / f.num_kv_heads);
  const int first_head = static_cast<int>(blockIdx.y) * group;
  const Head<T> keys(f, first_head);
  const Shared<kTile> shared(keys.size());
  const int n = keys.num_tokens(), size = keys.size();
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int last = first + kTile <= n ? first + kTile - 1 : n - 1;
  load_rows<kTile>(shared.a, keys.part(1), keys.qkv_stride(), first, size, n, 1.0f);
  load_rows<kTile>(shared.b, keys.part(2), keys.qkv_stride(), first, size, n, 1.0f);
  float dk[kPart][kColumns] = {}, dv[kPart][kColumns] = {}, factor[kPart];
  for (float& x : factor) x = 1.0f;
  const int first_query = f.causal ? first : keys.start(first);
  for (int i = first_head; i < first_head + group; ++i) {
    const Head<T> head(f, i);
    for (int query = first_query / kTile * kTile; query < n; query += kTile) {
      if (head.is_past_queries(last, query)) break;
      __syncthreads();
      load_rows<kTile>(shared.c, head.part(0), head.qkv_stride(), query, size, n, f.scale);
      load_rows<kTile>(shared.d, head.dout(), head.out_stride(), query, size, n, 1.0f);
      load_statistics(head, shared, query);
      __syncthreads();
      differentiate(head, shared, shared.a, shared.c, shared.b, shared.d, first, query, false);
      __syncthreads();
      add_weighted<kTile>(dk, shared.dscores, shared.c, size);
      add_weighted<kTile>(dv, shared.weights, shared.d, size);
    }
  }
  store_rows<kTile>(keys.gradient(1), keys.qkv_stride(), first, size, n, dk, factor);
  store_rows<kTile>(keys.gradient(2), keys.qkv_stride(), first, size, n, dv, factor);
}

template <int kTile, int kColumns, class T>
void launch_forward(cudaStream_t stream, const AttentionOperands& f) {
  launch("attention_forward", stream, attention_grid(f, kTile, f.num_heads), kThreads,
         Shared<kTile>::bytes(f.head_size), attend<kTile, kColumns, T>, f);
}

template <int kTile, int kColumns, class T>
void launch_backward(cudaStream_t stream, const AttentionOperands& f) {
  const size_t bytes = Shared<kTile>::bytes(f.head_size);
  launch("attention_backward", stream, attention_grid(f, kTile, f.num_kv_heads), kThreads, bytes,
         differentiate_keys<kTile, kColumns, T>, f);
  launch("attention_backward", stream, attention_grid(f, kTile, f.num_heads), kThreads, bytes,
         differentiate_queries<kTile, kColumns, T>, f);
}

}  // namespace

// Larger heads use smaller tiles, so that the tiles fit in the shared memory of every architecture.
void attention_forward_plain(cudaStream_t stream, const AttentionOperands& f) {
  if (f.dtype == DType::BF16) return launch_forward<16, 16, BF16>(stream, f);
  if (f.dtype == DType::F16) return launch_forward<16, 16, F16>(stream, f);
  if (f.head_size <= 64) return launch_forward<32, 4, float>(stream, f);
  if (f.head_size <= 128) return launch_forward<32, 8, float>(stream, f);
  launch_forward<16, 16, float>(stream, f);
}

void attention_backward_plain(cudaStream_t stream, const AttentionOperands& f) {
  if (f.dtype == DType::BF16) return launch_backward<16, 16, BF16>(stream, f);
  if (f.dtype == DType::F16) return launch_backward<16, 16, F16>(stream, f);
  if (f.head_size <= 64) return launch_backward<32, 4, float>(stream, f);
  if (f.head_size <= 128) return launch_backward<32, 8, float>(stream, f);
  launch_backward<16, 16, float>(stream, f);
}

}  // namespace ebb::cuda
