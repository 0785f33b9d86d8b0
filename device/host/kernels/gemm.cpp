#include "device/host/kernels/gemm.h"

#include <hwy/cache_control.h>

#include "device/host/kernels/gemm_kernel.h"
#include "device/host/kernels/tasks.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

constexpr int64_t kRowMultiple = 24;   // of all tile heights: 8, 6, 2, 1
constexpr int64_t kBlockColumns = 96;  // of B, packed by one task; a multiple of all tile widths
constexpr int64_t kWords = 768;        // of a line: two blocks of B fit a cache of 1 MiB
constexpr int64_t kPackedRows = 1024;  // of A, if their lines have kWords words
constexpr int64_t kFewestRows = 96;    // of a task: with fewer rows, packing B would dominate

const GemmKernel& kernel_for(const Gemm& g, Arithmetic arithmetic) {
  const bool dot =
      arithmetic == Arithmetic::Bf16Dot && g.a.dtype == DType::BF16 && g.b.dtype == DType::BF16;
  return dot ? dot_gemm_kernel() : fma_gemm_kernel();
}

/// The division of a product into blocks. It has no effect on results.
struct GemmBlocking {
  int64_t rows, columns;  // of C in one super-block
  int64_t words;          // of a line per pass
  int64_t passes;         // over C

  GemmBlocking(const Gemm& g, const GemmKernel& kernel) {
    const int64_t all_words = std::max<int64_t>(1, ceil_div(g.k, kernel.links_per_word));
    passes = ceil_div(all_words, kWords);
    words = ceil_div(all_words, passes);
    // If lines are shorter, more of them fit in the same memory.
    rows = std::min(g.m, passes == 1 ? kPackedRows * kWords / words : kPackedRows);
    columns = passes == 1 ? g.n : std::min<int64_t>(g.n, 1536);
  }
  int64_t packed_a() const { return round_up(rows, kRowMultiple) * words; }
  int64_t packed_b() const { return kBlockColumns * words; }
  int64_t partial_c() const {
    return passes > 1 ? round_up(rows, kRowMultiple) * round_up(columns, kBlockColumns) : 0;
  }
};

/// The smallest number of blocks of rows that keeps nearly all threads busy. The number is small
/// because each block packs B again.
int64_t blocks_of_rows(int64_t rows, int64_t column_blocks, int64_t threads) {
  const int64_t most = ceil_div(rows, kFewestRows);
  for (int64_t blocks = 1; blocks < most; ++blocks) {
    const int64_t tasks = blocks * column_blocks;
    const int64_t slots = round_up(tasks, threads);
    if (tasks >= 2 * threads && 10 * tasks >= 9 * slots) return blocks;
  }
  return most;
}

/// One super-block of C during one pass over k.
struct GemmPass {
  const Gemm& g;
  const GemmKernel& kernel;
  int64_t m0, rows, n0, columns, k0, links;
  bool first, last;
  float* packed_a;
  float* partial_c;

  int64_t words() const { return ceil_div(links, kernel.links_per_word); }

  PanelSource panel(const GemmOperand& from, int64_t line_stride, int64_t link_stride, int64_t line,
                    int64_t num_lines) const {
    const int64_t offset = line * line_stride + k0 * link_stride;
    const auto* data = static_cast<const std::byte*>(from.data) +
                       offset * static_cast<int64_t>(size_of(from.dtype));
    return {data, from.dtype, line_stride, link_stride, num_lines, links};
  }

  void pack_a(int64_t row, int64_t num_rows) const {
    kernel.pack_rows(packed_a + row * words(),
                     panel(g.a, g.a.row_stride, g.a.column_stride, m0 + row, num_rows));
  }

  PanelSource block_of_b(int64_t column) const {
    return panel(g.b, g.b.column_stride, g.b.row_stride, n0 + column,
                 std::min(kBlockColumns, columns - column));
  }

  /// Multiplies rows [row_begin, row_end) of the super-block with the kBlockColumns columns from
  /// `column` on.
  void multiply(int64_t row_begin, int64_t row_end, int64_t column, float* packed_b,
                Upcoming upcoming) const {
    const int64_t width = std::min(kBlockColumns, columns - column);
    kernel.pack_columns(packed_b, block_of_b(column));
    for (int64_t i = row_begin; i < row_end; i += kernel.tile_rows) {
      for (int64_t j = 0; j < width; j += kernel.tile_columns)
        multiply_tile(i, column + j, packed_b + j * words(), upcoming);
    }
  }

  /// The partial sums of a tile. Tiles are stored one row of tiles after the other.
  float* partial_tile(int64_t row, int64_t column) const {
    const int64_t tiles_a_row = ceil_div(columns, kernel.tile_columns);
    const int64_t index = (row / kernel.tile_rows) * tiles_a_row + column / kernel.tile_columns;
    return partial_c + index * (kernel.tile_rows * kernel.tile_columns);
  }

  void multiply_tile(int64_t row, int64_t column, const float* packed_b, Upcoming& upcoming) const {
    constexpr int64_t kLargestTile = 8 * 64, kFloatsALine = 16;
    alignas(64) float local[kLargestTile];
    float* tile = local;
    if (partial_c != nullptr) {
      tile = partial_tile(row, column);
      const int64_t size = kernel.tile_rows * kernel.tile_columns;
      for (int64_t i = 0; i < size; i += kFloatsALine) hwy::Prefetch(tile + size + i);
    }
    kernel.multiply(words(), packed_a + row * words(), packed_b, tile, first, upcoming);
    if (last) finish(tile, row, column);
  }

  void finish(const float* tile, int64_t row, int64_t column) const {
    const auto at = [](auto* data, int64_t element, DType type) {
      return data + element * static_cast<int64_t>(size_of(type));
    };
    const auto* bias = static_cast<const std::byte*>(g.bias);
    const void* const old = g.old != nullptr ? g.old : g.c;
    const int64_t first = (m0 + row) * g.n + n0 + column;
    finish_tile(tile, {.c = at(static_cast<std::byte*>(g.c), first, g.c_dtype),
                       .old = at(static_cast<const std::byte*>(old), first, g.c_dtype),
                       .dtype = g.c_dtype,
                       .row_stride = g.n,
                       .rows = std::min(kernel.tile_rows, rows - row),
                       .columns = std::min(kernel.tile_columns, columns - column),
                       .bias = bias == nullptr ? nullptr : at(bias, n0 + column, g.b.dtype),
                       .bias_dtype = g.b.dtype,
                       .write = g.write,
                       .read_late = g.read_late,
                       .tile_stride = kernel.tile_columns});
  }

  /// The block of B for a task of this pass or, after the last task, for the first tasks of the
  /// next pass.
  Upcoming upcoming(int64_t task, int64_t num_tasks) const {
    const int64_t column_blocks = ceil_div(columns, kBlockColumns);
    GemmPass pass = *this;
    if (task >= num_tasks) {
      pass.k0 += links;
      pass.links = std::min(links, g.k - pass.k0);
    }
    return pass.links > 0 ? Upcoming(pass.block_of_b(task % column_blocks * kBlockColumns))
                          : Upcoming();
  }

  void run(ThreadTeam& team, float* packed_b, int64_t packed_b_words) const {
    for_each_range(team, rows, 8 * kernel.tile_rows,
                   [&](int64_t begin, int64_t end) { pack_a(begin, end - begin); });
    const int64_t column_blocks = ceil_div(columns, kBlockColumns);
    const int64_t row_blocks = blocks_of_rows(rows, column_blocks, team.num_threads());
    const int64_t block_rows = round_up(ceil_div(rows, row_blocks), kernel.tile_rows);
    const int64_t num_tasks = column_blocks * row_blocks;
    for_each_scratch(team, num_tasks, [&](int64_t task, int64_t scratch) {
      const int64_t begin = (task / column_blocks) * block_rows;
      multiply(begin, std::min(rows, begin + block_rows), (task % column_blocks) * kBlockColumns,
               packed_b + scratch * packed_b_words, upcoming(task + team.num_threads(), num_tasks));
      if (g.read_late) hwy::FlushStream();
    });
  }
};

}  // namespace

size_t gemm_workspace_bytes(const Gemm& gemm, int num_threads) {
  size_t most = 0;
  for (const GemmKernel* kernel : {&fma_gemm_kernel(), &dot_gemm_kernel()}) {
    const GemmBlocking block(gemm, *kernel);
    most = std::max(most, Scratch::bytes_of<float>(block.packed_a()) +
                              Scratch::bytes_of<float>(block.packed_b() * num_threads) +
                              Scratch::bytes_of<float>(block.partial_c()));
  }
  return most;
}

void run_gemm(const Gemm& g, Arithmetic arithmetic, ThreadTeam& team, const Workspace& workspace) {
  const GemmKernel& kernel = kernel_for(g, arithmetic);
  const GemmBlocking block(g, kernel);
  Scratch scratch(workspace);
  float* packed_a = scratch.take<float>(block.packed_a());
  float* packed_b = scratch.take<float>(block.packed_b() * team.num_threads());
  float* partial_c = block.passes > 1 ? scratch.take<float>(block.partial_c()) : nullptr;
  const int64_t links = block.words * kernel.links_per_word;
  for (int64_t n0 = 0; n0 < g.n; n0 += block.columns) {
    for (int64_t m0 = 0; m0 < g.m; m0 += block.rows) {
      for (int64_t pass = 0; pass < block.passes; ++pass) {
        const int64_t k0 = pass * links;
        const GemmPass one{g,         kernel,
                           m0,        std::min(block.rows, g.m - m0),
                           n0,        std::min(block.columns, g.n - n0),
                           k0,        std::min(links, g.k - k0),
                           pass == 0, pass + 1 == block.passes,
                           packed_a,  partial_c};
        one.run(team, packed_b, block.packed_b());
      }
    }
  }
}

}  // namespace ebb
