#include <cmath>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

#ifndef EBB_HOST_KERNELS_NORM_ARGUMENTS_
#define EBB_HOST_KERNELS_NORM_ARGUMENTS_
namespace ebb {
namespace {

/// The sums of a backward over rows. Rows are summed in blocks whose number and size depend only on
/// the shape.
struct RowBlocks {
  int64_t num_rows, num_columns;

  explicit RowBlocks(const Tensor& x) : num_rows(x.rows()), num_columns(x.columns()) {}
  int64_t height() const { return std::max<int64_t>(64, ceil_div(num_rows, 64)); }
  int64_t count() const { return ceil_div(num_rows, height()); }
  int64_t padded_columns() const { return round_up(num_columns, 16); }
};

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void normalize_row(const LayerNormForward& f, int64_t row) {
  const int64_t n = f.x.columns();
  const T *x = row_of<T>(f.x, row), *w = f.w.as<T>(), *b = f.b.as<T>();
  T* y = row_of<T>(f.y, row);
  const Wide sum = sum_over(n, broadcast(0.0f), [&](int64_t i, const Wide& s) HWY_ATTR {
    return s + load_up_to(x + i, n - i);
  });
  const float mean = reduce_add(sum) / static_cast<float>(n);
  const Wide mean_wide = broadcast(mean);
  const Wide squares = sum_over(n, broadcast(0.0f), [&](int64_t i, const Wide& s) HWY_ATTR {
    const Wide d = load_up_to(x + i, n - i, mean) - mean_wide;
    return fma(d, d, s);
  });
  const float rstd = 1.0f / std::sqrt(reduce_add(squares) / static_cast<float>(n) + f.epsilon);
  const Wide rstd_wide = broadcast(rstd);
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide normal = (load_up_to(x + i, n - i) - mean_wide) * rstd_wide;
    store_up_to(y + i, fma(normal, load_up_to(w + i, n - i), load_up_to(b + i, n - i)), n - i);
  }
  f.mean.as<float>()[row] = mean;
  f.rstd.as<float>()[row] = rstd;
}

void layer_norm(const LayerNormForward& f, ThreadTeam& team) {
  for_each_float_row(team, f.x, 16,
                     [&](auto zero, int64_t row) { normalize_row<decltype(zero)>(f, row); });
}

/// The sums over a row of g and of g xhat.
struct Sums {
  Wide g, gx;

  HWY_INLINE friend Sums operator+(const Sums& a, const Sums& b) {
    return {a.g + b.g, a.gx + b.gx};
  }
};

/// Computes dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy w, and adds dy xhat and dy to
/// the sums of the block.
template <class T>
void backward_row(const LayerNormBackward& f, int64_t row, float* dw, float* db) {
  const int64_t n = f.x.columns();
  const T *dy = row_of<T>(f.dy, row), *x = row_of<T>(f.x, row), *w = f.w.as<T>();
  T* dx = row_of<T>(f.dx, row);
  const Wide mean = broadcast(f.mean.as<float>()[row]), rstd = broadcast(f.rstd.as<float>()[row]);
  const Sums sums =
      sum_over(n, Sums{broadcast(0.0f), broadcast(0.0f)}, [&](int64_t i, const Sums& s) HWY_ATTR {
        const Wide g = load_up_to(dy + i, n - i) * load_up_to(w + i, n - i);
        return Sums{s.g + g, fma(g, (load_up_to(x + i, n - i) - mean) * rstd, s.gx)};
      });
  const Wide mean_g = broadcast(reduce_add(sums.g) / static_cast<float>(n));
  const Wide mean_gx = broadcast(reduce_add(sums.gx) / static_cast<float>(n));
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide d = load_up_to(dy + i, n - i);
    const Wide normal = (load_up_to(x + i, n - i) - mean) * rstd;
    const Wide g = d * load_up_to(w + i, n - i);
    const Wide value = (g - mean_g - normal * mean_gx) * rstd;
    store(dw + i, fma(d, normal, load(dw + i)));
    store(db + i, d + load(db + i));
    write_up_to(dx + i, value, n - i, f.dx_write);
  }
}

/// Sums the partial sums of one parameter in the order of the blocks, and writes the result.
void finish_parameter(const RowBlocks& blocks, const float* partials, float* to, Write write,
                      int64_t i) {
  Wide sum = broadcast(0.0f);
  for (int64_t block = 0; block < blocks.count(); ++block) {
    sum = sum + load(partials + block * 2 * blocks.padded_columns() + i);
  }
  write_up_to(to + i, sum, blocks.num_columns - i, write);
}

void layer_norm_gradient(const LayerNormBackward& f, ThreadTeam& team, const Workspace& workspace) {
  const RowBlocks blocks(f.x);
  const int64_t width = blocks.padded_columns(), height = blocks.height();
  float* partials = Scratch(workspace).take<float>(blocks.count() * 2 * width);
  with_float_type(f.x.dtype, [&](auto zero) {
    for_each_range(team, blocks.num_rows, height, [&](int64_t begin, int64_t end) {
      float* dw = partials + begin / height * 2 * width;
      std::fill_n(dw, 2 * width, 0.0f);
      for (int64_t row = begin; row < end; ++row) {
        backward_row<decltype(zero)>(f, row, dw, dw + width);
      }
    });
  });
  for_each_range(team, blocks.num_columns, 8 * kWide, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kWide) {
      finish_parameter(blocks, partials, f.dw.as<float>(), f.parameter_write, i);
      finish_parameter(blocks, partials + width, f.db.as<float>(), f.parameter_write, i);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(layer_norm);
HWY_EXPORT(layer_norm_gradient);

void LayerNormForward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(layer_norm)(*this, host.team);
}

size_t LayerNormBackward::workspace_bytes(const HostLaunch&) const {
  const RowBlocks blocks(x);
  return Scratch::bytes_of<float>(blocks.count() * 2 * blocks.padded_columns());
}

void LayerNormBackward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(layer_norm_gradient)(*this, host.team, host.workspace);
}

}  // namespace ebb
#endif
