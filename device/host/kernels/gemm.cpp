#include "device/host/kernels/gemm.h"

#include "device/host/kernels/host_kernels.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/gemm-inl.h"
#include "device/host/kernels/simd-inl.h"

#ifndef EBB_HOST_KERNELS_GEMM_BLOCKING_
#define EBB_HOST_KERNELS_GEMM_BLOCKING_
namespace ebb {
namespace {

constexpr int64_t kRowMultiple = 24;    // of all tile heights: 8, 6, 2, 1
constexpr int64_t kBlockColumns = 192;  // of B packed by one task; a multiple of all tile widths
constexpr int64_t kLinks = 768;         // so that a packed block of B stays in a cache of 1 MiB

/// How a product is cut. None of it changes a result.
struct GemmBlocking {
  int64_t rows, columns;  // of C in one super-block
  int64_t k;              // links of the chain between visits to memory
  int64_t passes;         // visits

  explicit GemmBlocking(const Gemm& g)
      : rows(std::min<int64_t>(g.m, 1024)),
        columns(std::min<int64_t>(g.n, 1536)),
        k(g.k),
        passes(std::max<int64_t>(1, ceil_div(g.k, kLinks))) {
    k = std::max<int64_t>(1, ceil_div(g.k, passes));
  }
  int64_t packed_a() const { return round_up(rows, kRowMultiple) * k; }
  int64_t packed_b() const { return kBlockColumns * k; }
  int64_t partial_c() const {
    return passes > 1 ? round_up(rows, kRowMultiple) * round_up(columns, kBlockColumns) : 0;
  }
};

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kTileRows = 8, kTileVecs = 3;
#elif HWY_TARGET == HWY_AVX2
constexpr int kTileRows = 6, kTileVecs = 2;
#elif HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 1, kTileVecs = 16;
#else
constexpr int kTileRows = 2, kTileVecs = 4;
#endif
constexpr int64_t kTileColumns = kTileVecs * kLanes;
static_assert(kRowMultiple % kTileRows == 0 && kBlockColumns % kTileColumns == 0);
static_assert(kTileColumns % kWide == 0);

/// Packs `count` lines of length k, strided by line_stride and contiguous along k: to[j * kWidth +
/// i] = line i at j.
template <int64_t kWidth, class T>
HWY_INLINE void pack_along_k(float* to, const T* from, int64_t line_stride, int64_t count,
                             int64_t k) {
  int64_t first = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; kWidth % 4 == 0 && first + 4 <= count; first += 4) {
    const T* lines = from + first * line_stride;
    int64_t j = 0;
    for (; j + 4 <= k; j += 4)
      transpose_4x4(to + j * kWidth + first, kWidth, lines + j, line_stride);
    for (; j < k; ++j) {
      for (int64_t i = 0; i < 4; ++i) {
        to[j * kWidth + first + i] = static_cast<float>(lines[i * line_stride + j]);
      }
    }
  }
#endif
  for (int64_t i = first; i < kWidth; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      to[j * kWidth + i] = i < count ? static_cast<float>(from[i * line_stride + j]) : 0.0f;
    }
  }
}

/// The same where neighbouring lines are neighbours in memory: to[j * kWidth + i] = from[j *
/// k_stride + i].
template <int64_t kWidth, class T>
HWY_INLINE void pack_across_k(float* to, const T* from, int64_t k_stride, int64_t count,
                              int64_t k) {
  if (count == kWidth && kWidth % kWide == 0) {
    for (int64_t j = 0; j < k; ++j) {
      for (int64_t i = 0; i < kWidth; i += kWide)
        store(to + j * kWidth + i, load(from + j * k_stride + i));
    }
    return;
  }
  for (int64_t j = 0; j < k; ++j) {
    for (int64_t i = 0; i < kWidth; ++i) {
      to[j * kWidth + i] = i < count ? static_cast<float>(from[j * k_stride + i]) : 0.0f;
    }
  }
}

/// Lines are rows of A or columns of B: `line_stride` apart, their elements `k_stride` apart.
template <int64_t kWidth>
void pack_panel(float* to, const GemmOperand& from, int64_t line_stride, int64_t k_stride,
                int64_t first_line, int64_t count, int64_t first_k, int64_t k) {
  const int64_t offset = first_line * line_stride + first_k * k_stride;
  with_float_type(from.dtype, [&](auto zero) HWY_ATTR {
    const auto* p = static_cast<const decltype(zero)*>(from.data) + offset;
    if (k_stride == 1) {
      pack_along_k<kWidth>(to, p, line_stride, count, k);
    } else {
      pack_across_k<kWidth>(to, p, k_stride, count, k);
    }
  });
}

/// Adds bias and what was there, rounds and writes a tile's valid part.
template <class TC, class TB>
HWY_INLINE void finish_tile(const float* tile, TC* c, int64_t c_stride, int64_t rows,
                            int64_t columns, const TB* bias, Write write) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < columns; i += kWide) {
      TC* to = c + r * c_stride + i;
      Wide value = load(tile + r * kTileColumns + i);
      if (bias != nullptr) value = value + load_up_to(bias + i, columns - i);
      if (write == Write::Add) value = load_up_to(to, columns - i) + value;
      store_up_to(to, value, columns - i);
    }
  }
}

/// One super-block of C during one pass over k.
struct GemmPass {
  const Gemm& g;
  int64_t m0, rows, n0, columns, k0, k;
  bool first, last;
  float* packed_a;
  float* partial_c;

  void pack_a(int64_t panel) const {
    const int64_t row = panel * kTileRows;
    pack_panel<kTileRows>(packed_a + row * k, g.a, g.a.row_stride, g.a.column_stride, m0 + row,
                          std::min<int64_t>(kTileRows, rows - row), k0, k);
  }

  /// Rows [row_begin, row_end) of the super-block times its block of kBlockColumns columns from
  /// `column`.
  void multiply(int64_t row_begin, int64_t row_end, int64_t column, float* packed_b) const {
    const int64_t width = std::min(kBlockColumns, columns - column);
    for (int64_t j = 0; j < width; j += kTileColumns) {
      pack_panel<kTileColumns>(packed_b + j * k, g.b, g.b.column_stride, g.b.row_stride,
                               n0 + column + j, std::min(kTileColumns, width - j), k0, k);
    }
    for (int64_t i = row_begin; i < row_end; i += kTileRows) {
      for (int64_t j = 0; j < width; j += kTileColumns) {
        multiply_tile(i, column + j, packed_b + j * k);
      }
    }
  }

  void multiply_tile(int64_t row, int64_t column, const float* packed_b) const {
    alignas(64) float local[kTileRows * kTileColumns];
    float* tile = local;
    if (partial_c != nullptr) {
      const int64_t tiles_a_row = ceil_div(columns, kTileColumns);
      tile = partial_c +
             ((row / kTileRows) * tiles_a_row + column / kTileColumns) * (kTileRows * kTileColumns);
    }
    micro_kernel<kTileRows, kTileVecs>(k, packed_a + row * k, packed_b, tile,
                                       {1, kTileRows, kTileColumns, kTileColumns}, first);
    if (last) finish(tile, row, column);
  }

  void finish(const float* tile, int64_t row, int64_t column) const {
    const int64_t tile_rows = std::min<int64_t>(kTileRows, rows - row);
    const int64_t tile_columns = std::min(kTileColumns, columns - column);
    with_float_type(g.c_dtype, [&](auto c_zero) HWY_ATTR {
      auto* c = static_cast<decltype(c_zero)*>(g.c) + (m0 + row) * g.n + n0 + column;
      with_float_type(g.b.dtype, [&](auto b_zero) HWY_ATTR {
        auto* bias = static_cast<const decltype(b_zero)*>(g.bias);
        finish_tile(tile, c, g.n, tile_rows, tile_columns,
                    bias == nullptr ? nullptr : bias + n0 + column, g.write);
      });
    });
  }
};

void run_pass(const GemmPass& pass, ThreadTeam& team, float* packed_b, int64_t packed_b_floats) {
  const int64_t num_panels = ceil_div(pass.rows, kTileRows);
  for_each_range(team, num_panels, 8, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) pass.pack_a(panel);
  });
  const int64_t column_blocks = ceil_div(pass.columns, kBlockColumns);
  const int64_t wanted = ceil_div(4 * team.num_threads(), column_blocks);
  const int64_t row_blocks = std::clamp<int64_t>(wanted, 1, ceil_div(pass.rows, 96));
  const int64_t block_rows = round_up(ceil_div(pass.rows, row_blocks), kTileRows);
  for_each_slot(team, column_blocks * row_blocks, [&](int64_t task, int64_t slot) {
    const int64_t begin = (task / column_blocks) * block_rows;
    pass.multiply(begin, std::min(pass.rows, begin + block_rows),
                  (task % column_blocks) * kBlockColumns, packed_b + slot * packed_b_floats);
  });
}

void gemm_on_target(const Gemm& g, ThreadTeam& team, const Workspace& workspace) {
  const GemmBlocking block(g);
  Scratch scratch(workspace);
  float* packed_a = scratch.take<float>(block.packed_a());
  float* packed_b = scratch.take<float>(block.packed_b() * team.num_threads());
  float* partial_c = block.passes > 1 ? scratch.take<float>(block.partial_c()) : nullptr;
  for (int64_t n0 = 0; n0 < g.n; n0 += block.columns) {
    for (int64_t m0 = 0; m0 < g.m; m0 += block.rows) {
      for (int64_t pass = 0; pass < block.passes; ++pass) {
        const int64_t k0 = pass * block.k;
        run_pass(
            {g, m0, std::min(block.rows, g.m - m0), n0, std::min(block.columns, g.n - n0), k0,
             std::min(block.k, g.k - k0), pass == 0, pass + 1 == block.passes, packed_a, partial_c},
            team, packed_b, block.packed_b());
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(gemm_on_target);

size_t gemm_workspace_bytes(const Gemm& gemm, int num_threads) {
  const GemmBlocking block(gemm);
  return Scratch::bytes_of<float>(block.packed_a()) +
         Scratch::bytes_of<float>(block.packed_b() * num_threads) +
         Scratch::bytes_of<float>(block.partial_c());
}

void run_gemm(const Gemm& gemm, ThreadTeam& team, const Workspace& workspace) {
  const auto run = HWY_DYNAMIC_DISPATCH(gemm_on_target);
  run(gemm, team, workspace);
}

}  // namespace ebb
#endif
