// Attention of new tokens to a cache of keys and values. One warp computes one head of one query,
// and reads the keys one after the other. The speed of generation is limited by the memory traffic
// of the cache, not by arithmetic.
#include <limits>

#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/gpu_launch.h"

namespace ebb::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kChannelsALane = kLargestHead / kWarp;

/// Checks that positions are consecutive and inside the cache.
__global__ void find_bad_position(AttentionOperands f, DataError* error) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i >= f.batch * f.num_tokens) return;
  const int64_t token = i % f.num_tokens, position = f.positions[i];
  const bool follows = token == 0 || position == f.positions[i - 1] + int64_t{1};
  if (follows && position >= 0 && position < f.capacity) return;
  if (atomicCAS(&error->kind, DataError::None, DataError::Position) != DataError::None) return;
  error->row = i;
  error->value = position;
  error->limit = f.capacity;
}

/// The keys and values of one position of one row of the batch, in the cache.
template <class T>
__device__ __forceinline__ T* cache_row(const AttentionOperands& f, int64_t b, int64_t position) {
  const int64_t columns = 2 * f.num_kv_heads * f.head_size;
  return static_cast<T*>(f.cache) + (b * f.capacity + position) * columns;
}

template <class T>
__global__ void __launch_bounds__(kElementThreads) append(AttentionOperands f) {
  const int64_t columns = 2 * f.num_kv_heads * f.head_size;
  const int64_t queries = f.num_heads * f.head_size;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (i >= f.batch * f.num_tokens * columns) return;
  const int64_t token = i / columns, column = i % columns, position = f.positions[token];
  // Tokens whose positions are not consecutive could have the same position, and two threads would
  // write to it.
  const int64_t in_sequence = token % f.num_tokens;
  if (position != f.positions[token - in_sequence] + in_sequence) return;
  if (position < 0 || position >= f.capacity) return;
  const T* from = static_cast<const T*>(f.qkv) + token * (queries + columns) + queries;
  cache_row<T>(f, token / f.num_tokens, position)[column] = from[column];
}

template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) attend(AttentionOperands f) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (index >= f.batch * f.num_tokens * f.num_heads) return;
  const int64_t token = index / f.num_heads, head = index % f.num_heads;
  const int64_t position = f.positions[token];
  if (position < 0 || position >= f.capacity) return;
  const int size = static_cast<int>(f.head_size), lane = lane_index();
  const int64_t stride = (f.num_heads + 2 * f.num_kv_heads) * f.head_size;
  const T* query = static_cast<const T*>(f.qkv) + token * stride + head * f.head_size;
  const int64_t kv_head = head / (f.num_heads / f.num_kv_heads);
  float q[kChannelsALane], o[kChannelsALane] = {};
  for (int j = 0; j < kChannelsALane; ++j) {
    const int channel = lane + j * kWarp;
    q[j] = channel < size ? to_float(query[channel]) * f.scale : 0.0f;
  }
  float top = -std::numeric_limits<float>::max(), sum = 0.0f;
  const int64_t first = f.window > 0 && position >= f.window ? position - f.window + 1 : 0;
  for (int64_t at = first; at <= position; ++at) {
    const T* key = cache_row<T>(f, token / f.num_tokens, at) + kv_head * f.head_size;
    const T* value = key + f.num_kv_heads * f.head_size;
    float score = 0.0f;
    for (int j = 0; j < kChannelsALane; ++j) {
      const int channel = lane + j * kWarp;
      if (channel < size) score = fmaf(q[j], to_float(key[channel]), score);
    }
    score = sum_of_warp(score);
    const float highest = fmaxf(top, score);
    const float factor = expf(top - highest), weight = expf(score - highest);
    top = highest;
    sum = fmaf(sum, factor, weight);
    for (int j = 0; j < kChannelsALane; ++j) {
      const int channel = lane + j * kWarp;
      if (channel < size) o[j] = fmaf(weight, to_float(value[channel]), o[j] * factor);
    }
  }
  T* out = static_cast<T*>(f.out) + index * f.head_size;
  for (int j = 0; j < kChannelsALane; ++j) {
    const int channel = lane + j * kWarp;
    if (channel < size) out[channel] = T(o[j] / sum);
  }
}

}  // namespace
}  // namespace ebb::cuda

namespace ebb {

using namespace cuda;

void AttentionCached::run(const GpuLaunch& gpu) const {
  const AttentionOperands f = operands();
  const int64_t num_tokens = f.batch * f.num_tokens;
  launch("check_positions", gpu.stream, blocks_for(num_tokens, kElementThreads), kElementThreads, 0,
         find_bad_position, f, gpu.data_error);
  with_float_type(f.dtype, [&](auto zero) {
    launch("attention_cached", gpu.stream,
           blocks_for(num_tokens * f.key_columns(), kElementThreads), kElementThreads, 0,
           append<decltype(zero)>, f);
    launch("attention_cached", gpu.stream, blocks_for(num_tokens * f.num_heads, kWarps),
           kWarps * kWarp, 0, attend<decltype(zero)>, f);
  });
}

}  // namespace ebb
