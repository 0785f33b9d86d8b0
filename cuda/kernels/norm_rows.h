// Layer norm and RMS norm of whole rows. A team of threads, which is a block or, in the forward of
// narrow rows, a warp, computes one row at a time. A thread has the same columns of all rows, so
// that each row is read once, and the sums over rows stay in registers. While a team computes a
// row, it loads its next one.
//
// Rows with more columns than a block has registers for are left to the kernels in norm.cu and
// rms_norm.cu.
#pragma once

#include <type_traits>

#include "cuda/kernels/row_blocks.h"
#include "cuda/kernels/wide.h"

namespace ebb::cuda {

template <class T>
struct NormRows {
  int64_t num_rows, num_columns;
  const T* x;
  const T* w;
  float* mean;  // (num_rows); null: RMS norm. The forward writes it, the backward reads it
  float* rstd;  // (num_rows), in the same way
};

inline constexpr int kMostNormThreads = 512;
inline constexpr int kMostNormGroups = 2;  // of each thread, in a row

inline constexpr int kWarpNormGroups = 4;  // of each lane, where a warp computes a row

/// How the threads of a block share a row: a group has 16 bytes, and thread t has groups t,
/// t + num_threads, ...
struct RowShape {
  int groups_a_thread;  // 0: the row is too wide
  int num_threads;

  constexpr RowShape(int64_t num_columns, size_t element_bytes) {
    const int64_t groups = ceil_div(num_columns * static_cast<int64_t>(element_bytes), 16);
    groups_a_thread = groups <= kMostNormThreads / 2                 ? 1
                      : groups <= kMostNormThreads * kMostNormGroups ? kMostNormGroups
                                                                     : 0;
    const int64_t threads = groups_a_thread == 0 ? 0 : ceil_div(groups, groups_a_thread);
    num_threads = static_cast<int>(ceil_div(threads, kWarp) * kWarp);
  }
};

/// The blocks that sum over rows: as many as run concurrently on kMultiprocessors. Each has a few
/// rows at least, so that partial sums are a small part of the memory traffic.
constexpr int64_t num_norm_blocks(int64_t num_rows, const RowShape& shape) {
  constexpr int64_t kFewRows = 8;
  // Of a multiprocessor, as its registers allow.
  const int64_t threads = shape.groups_a_thread == 1 ? 768 : 512;
  const int64_t most = kMultiprocessors * (threads / shape.num_threads);
  const int64_t blocks = ceil_div(num_rows, kFewRows);
  return blocks < most ? blocks : most;
}

struct BlockTeam {
  static constexpr bool kIsWarp = false;
  static constexpr int kMostThreads = kMostNormThreads;
  static constexpr int kBlocks = 1;  // at least, of a multiprocessor: bounds the registers
  static __device__ int size() { return static_cast<int>(blockDim.x); }
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ int64_t first_row() { return blockIdx.x; }
  static __device__ int64_t row_step() { return gridDim.x; }
};
struct WarpTeam {
  static constexpr bool kIsWarp = true;
  static constexpr int kMostThreads = 256;
  static constexpr int kBlocks = 2;
  static constexpr int kTeams = kMostThreads / kWarp;  // of a block
  static __device__ int size() { return kWarp; }
  static __device__ int thread() { return lane_index(); }
  static __device__ int64_t first_row() { return int64_t{blockIdx.x} * kTeams + warp_index(); }
  static __device__ int64_t row_step() { return int64_t{gridDim.x} * kTeams; }
};

/// What one thread has of a row: kGroups groups.
template <bool kIsWide, int kGroups, class T, class Team = BlockTeam>
struct RowPart {
  static constexpr int kCount = kWide<T>;
  Group<T, kCount> groups[kGroups];

  static __device__ __forceinline__ int64_t column(int group) {
    return static_cast<int64_t>(group * Team::size() + Team::thread()) * kCount;
  }
  __device__ __forceinline__ void load(const T* row, int64_t n) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      groups[j] = load_group<kIsWide, kCount>(row, column(j), n);
    }
  }
  static __device__ __forceinline__ void store(T* row, int64_t n,
                                               const float (&values)[kGroups][kCount]) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      store_group<kIsWide>(row, column(j), n, rounded<T>(values[j]));
    }
  }
  __device__ __forceinline__ float at(int group, int i) const {
    return to_float(groups[group].of[i]);
  }
};

/// Calls f(group, i) for each element of a thread.
template <int kGroups, int kCount, class F>
__device__ __forceinline__ void for_each_of_part(const F& f) {
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) f(j, i);
  }
}

/// Sums of one value of each thread, over the block, with one barrier for each sum. Two arrays of
/// scratch memory are used in turn, so that no thread overwrites what another still reads.
class BlockSum {
 public:
  static constexpr size_t kBytes = 4 * (kMostNormThreads / kWarp) * sizeof(float);

  __device__ explicit BlockSum(float* scratch) : scratch_(scratch) {}

  /// Both become their sums over the block.
  __device__ __forceinline__ void add(float& a, float& b) {
    for (int bits = kWarp / 2; bits > 0; bits /= 2) {  // the shuffles of both run concurrently
      const float other_a = __shfl_xor_sync(kAllLanes, a, bits);
      const float other_b = __shfl_xor_sync(kAllLanes, b, bits);
      a += other_a;
      b += other_b;
    }
    float* const to = scratch_ + turn_;
    if (lane_index() == 0) {
      to[2 * warp_index()] = a;
      to[2 * warp_index() + 1] = b;
    }
    __syncthreads();
    a = to[0];
    b = to[1];
    for (int i = 1; i < static_cast<int>(blockDim.x) / kWarp; ++i) {
      a += to[2 * i];
      b += to[2 * i + 1];
    }
    turn_ ^= kFloats;
  }
  __device__ __forceinline__ void add(float& a) {
    a = sum_of_warp(a);
    float* const to = scratch_ + turn_;
    if (lane_index() == 0) to[warp_index()] = a;
    __syncthreads();
    a = to[0];
    for (int i = 1; i < static_cast<int>(blockDim.x) / kWarp; ++i) a += to[i];
    turn_ ^= kFloats;
  }

 private:
  static constexpr int kFloats = 2 * (kMostNormThreads / kWarp);
  float* scratch_;
  int turn_ = 0;
};

/// The sum over the team is the same on all its threads.
template <class Team>
class TeamSum {
 public:
  __device__ void add(float& a) { block_.add(a); }

 private:
  BlockSum block_{shared_memory<float>()};
};
template <>
class TeamSum<WarpTeam> {
 public:
  __device__ void add(float& a) { a = sum_of_warp(a); }
};

template <bool kHasMean, bool kIsWide, int kGroups, class T, class Team>
__global__ void __launch_bounds__(Team::kMostThreads, kIsWide ? Team::kBlocks : 1)
    normalize_rows(NormRows<T> f, T* y, const T* b, float epsilon) {
  using Part = RowPart<kIsWide, kGroups, T, Team>;
  TeamSum<Team> sum;
  const int64_t first = Team::first_row(), step = Team::row_step();
  if (first >= f.num_rows) return;  // the whole team
  const int64_t n = f.num_columns;
  const float inverse = 1.0f / static_cast<float>(n);
  // A lane of a warp has too many columns to keep their weights. It reads them again from the
  // cache.
  constexpr bool kKeepsWeights = !Team::kIsWarp;
  Part w, shift, next;
  const auto load_weights = [&] {
    w.load(f.w, n);
    if constexpr (kHasMean) shift.load(b, n);
  };
  if constexpr (kKeepsWeights) load_weights();
  constexpr bool kReadsAhead = kIsWide || !Team::kIsWarp;
  if constexpr (kReadsAhead) next.load(f.x + first * n, n);
  for (int64_t row = first; row < f.num_rows; row += step) {
    if constexpr (!kReadsAhead) next.load(f.x + row * n, n);
    Part x = next;
    if (kReadsAhead && row + step < f.num_rows) next.load(f.x + (row + step) * n, n);
    float mean = 0.0f;
    if constexpr (kHasMean) {
      for_each_of_part<kGroups, Part::kCount>([&](int j, int i) { mean += x.at(j, i); });
      sum.add(mean);
      mean *= inverse;
    }
    float squares = 0.0f;
    for_each_of_part<kGroups, Part::kCount>([&](int j, int i) {
      const float d = x.at(j, i) - mean;
      if (Part::column(j) + (kIsWide ? 0 : i) < n) squares = fmaf(d, d, squares);
    });
    sum.add(squares);
    const float rstd = __fdiv_rn(1.0f, __fsqrt_rn(squares * inverse + epsilon));
    if constexpr (!kKeepsWeights) load_weights();
    float values[kGroups][Part::kCount];
    for_each_of_part<kGroups, Part::kCount>([&](int j, int i) {
      const float normal = (x.at(j, i) - mean) * rstd;
      values[j][i] = kHasMean ? fmaf(normal, w.at(j, i), shift.at(j, i)) : normal * w.at(j, i);
    });
    Part::store(y + row * n, n, values);
    if (Team::thread() == 0) {
      if constexpr (kHasMean) f.mean[row] = mean;
      f.rstd[row] = rstd;
    }
  }
}

/// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy w; an RMS norm has no mean(g). dx may be
/// dy. `partials`: for each block the sums of dy xhat over its rows; then, with a mean, of dy.
template <bool kHasMean, bool kIsWide, int kGroups, class T>
__global__ void __launch_bounds__(kGroups == 1 ? kMostNormThreads / 2 : kMostNormThreads)
    differentiate_rows(NormRows<T> f, T* dx, const T* dy, Write write, float* partials) {
  using Part = RowPart<kIsWide, kGroups, T>;
  constexpr int kCount = Part::kCount;
  BlockSum sum(shared_memory<float>());
  const int64_t n = f.num_columns;
  const float inverse = 1.0f / static_cast<float>(n);
  // Where registers would not be enough, weights are read again from the cache, and so is a row
  // after the barrier, instead of the next row ahead.
  constexpr bool kReadsAhead = kIsWide || kGroups == 1;
  constexpr bool kKeepsWeights = kReadsAhead && (kGroups == 1 || !kHasMean);
  Part w, next_x, next_dy;
  w.load(f.w, n);
  float dw[kGroups][kCount] = {}, db[kGroups][kCount] = {};
  float next_mean = 0.0f, next_rstd = 0.0f;
  const auto load_row = [&](int64_t row) {
    next_x.load(f.x + row * n, n);
    next_dy.load(dy + row * n, n);
    if constexpr (kHasMean) next_mean = f.mean[row];
    next_rstd = f.rstd[row];
  };
  if constexpr (kReadsAhead) load_row(blockIdx.x);
  for (int64_t row = blockIdx.x; row < f.num_rows; row += gridDim.x) {
    if constexpr (!kReadsAhead) load_row(row);
    if constexpr (!kKeepsWeights) w.load(f.w, n);
    Part x = next_x, d = next_dy;
    const float mean = next_mean, rstd = next_rstd;
    Part before = {};
    if (kReadsAhead && write == Write::Add) before.load(dx + row * n, n);
    if (kReadsAhead && row + gridDim.x < f.num_rows) load_row(row + gridDim.x);
    float g_sum = 0.0f, gx_sum = 0.0f;
    for_each_of_part<kGroups, kCount>([&](int j, int i) {
      const float normal = (x.at(j, i) - mean) * rstd, g = d.at(j, i) * w.at(j, i);
      g_sum += g;
      gx_sum = fmaf(g, normal, gx_sum);
      dw[j][i] = fmaf(d.at(j, i), normal, dw[j][i]);
      db[j][i] += d.at(j, i);
    });
    if constexpr (kHasMean) {
      sum.add(g_sum, gx_sum);
    } else {
      g_sum = 0.0f;
      sum.add(gx_sum);
    }
    const float g_mean = g_sum * inverse, gx_mean = gx_sum * inverse;
    if constexpr (!kKeepsWeights) w.load(f.w, n);
    if constexpr (!kReadsAhead) {
      x.load(f.x + row * n, n);
      d.load(dy + row * n, n);
      if (write == Write::Add) before.load(dx + row * n, n);
    }
    float values[kGroups][kCount];
    for_each_of_part<kGroups, kCount>([&](int j, int i) {
      const float normal = (x.at(j, i) - mean) * rstd, g = d.at(j, i) * w.at(j, i);
      const float value = rstd * (g - g_mean - normal * gx_mean);
      values[j][i] = write == Write::Add ? before.at(j, i) + value : value;
    });
    Part::store(dx + row * n, n, values);
  }
  constexpr int kFour = 4;  // fp32 of a 16-byte store
  float* const to = partials + blockIdx.x * (kHasMean ? 2 : 1) * n;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
#pragma unroll
    for (int i = 0; i < kCount; i += kFour) {
      const int64_t column = Part::column(j) + i;
      store_group<kIsWide>(
          to, column, n, Group<float, kFour>{{dw[j][i], dw[j][i + 1], dw[j][i + 2], dw[j][i + 3]}});
      if constexpr (!kHasMean) continue;
      store_group<kIsWide>(
          to + n, column, n,
          Group<float, kFour>{{db[j][i], db[j][i + 1], db[j][i + 2], db[j][i + 3]}});
    }
  }
}

/// Calls f with the kernel's constants: std::true_type or std::false_type for wide accesses, and
/// the number of groups of a thread as an integral_constant.
template <class F>
void with_row_shape(const RowShape& shape, bool is_wide, const F& f) {
  const auto with_groups = [&](auto wide) {
    if (shape.groups_a_thread == 1) {
      f(wide, std::integral_constant<int, 1>{});
    } else {
      f(wide, std::integral_constant<int, kMostNormGroups>{});
    }
  };
  is_wide ? with_groups(std::true_type{}) : with_groups(std::false_type{});
}

/// Can the rows of all these arrays be read 16 bytes at a time?
template <class T, class... P>
bool rows_are_wide(const NormRows<T>& rows, const P*... more) {
  return rows.num_columns % kWide<T> == 0 && is_aligned(rows.x, 16) && is_aligned(rows.w, 16) &&
         (is_aligned(more, 16) && ...);
}

/// y = norm of x; writes also the statistics. `b`: null for an RMS norm. REQUIRES:
/// is_in_registers(x).
template <bool kHasMean, class T>
void launch_norm_rows(const char* name, cudaStream_t stream, const NormRows<T>& rows, T* y,
                      const T* b, float epsilon) {
  const bool is_wide = rows_are_wide(rows, y, b);
  // Follows from the shape alone, as the order of sums must.
  const bool are_narrow = rows.num_columns <= kWide<T> * kWarp * kWarpNormGroups;
  if (are_narrow && rows.num_columns % kWide<T> == 0) {
    // As many blocks as run concurrently.
    const int64_t most = kMultiprocessors * WarpTeam::kBlocks;
    const int64_t blocks = ceil_div(rows.num_rows, WarpTeam::kTeams);
    const auto kernel = is_wide ? normalize_rows<kHasMean, true, kWarpNormGroups, T, WarpTeam>
                                : normalize_rows<kHasMean, false, kWarpNormGroups, T, WarpTeam>;
    return launch(name, stream, blocks_for(blocks < most ? blocks : most, 1),
                  WarpTeam::kMostThreads, 0, kernel, rows, y, b, epsilon);
  }
  const RowShape shape(rows.num_columns, sizeof(T));
  // About as many threads as run concurrently, as registers allow. The result of a row does not
  // depend on it.
  const int64_t threads = kMultiprocessors * (shape.groups_a_thread == 1 ? 1024 : 512);
  const int64_t most = ceil_div(threads, shape.num_threads);
  const dim3 grid = blocks_for(rows.num_rows < most ? rows.num_rows : most, 1);
  with_row_shape(shape, is_wide, [&](auto wide, auto groups) {
    launch(name, stream, grid, shape.num_threads, BlockSum::kBytes,
           normalize_rows<kHasMean, wide(), groups(), T, BlockTeam>, rows, y, b, epsilon);
  });
}

struct NormSums {
  float* dw;
  float* db;  // null for an RMS norm
  Write write;
};

/// Are the rows of x narrow enough for these kernels?
inline bool is_in_registers(const Tensor& x) {
  return RowShape(x.columns(), size_of(x.dtype)).groups_a_thread > 0;
}

/// REQUIRES, as the next: is_in_registers(x).
template <bool kHasMean>
size_t norm_partial_floats(const Tensor& x) {
  const RowShape shape(x.columns(), size_of(x.dtype));
  return static_cast<size_t>(num_norm_blocks(x.rows(), shape) * x.columns() * (kHasMean ? 2 : 1));
}

/// The gradients. `partials`: norm_partial_floats().
template <bool kHasMean, class T>
void launch_norm_rows_backward(const char* name, cudaStream_t stream, const NormRows<T>& rows,
                               T* dx, const T* dy, Write dx_write, const NormSums& sums,
                               float* partials) {
  const RowShape shape(rows.num_columns, sizeof(T));
  const int64_t blocks = num_norm_blocks(rows.num_rows, shape);
  with_row_shape(shape, rows_are_wide(rows, dx, dy, partials), [&](auto wide, auto groups) {
    launch(name, stream, blocks_for(blocks, 1), shape.num_threads, BlockSum::kBytes,
           differentiate_rows<kHasMean, wide(), groups(), T>, rows, dx, dy, dx_write, partials);
  });
  launch_block_sums(name, stream,
                    {sums.dw, sums.db, rows.num_columns, partials, blocks, sums.write});
}

}  // namespace ebb::cuda
