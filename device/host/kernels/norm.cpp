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

struct NormForward {
  DType dtype;
  int64_t num_rows, num_columns;
  void* y;
  float *mean, *rstd;
  const void *x, *w, *b;
  float epsilon;
};

struct NormBackward {
  DType dtype;
  int64_t num_rows, num_columns;
  void* dx;
  Write dx_write;
  float *dw, *db;
  Write parameter_write;
  const void *dy, *x, *w;
  const float *mean, *rstd;

  // Rows are summed in blocks whose number and size depend only on the shape.
  int64_t rows_a_block() const { return std::max<int64_t>(64, ceil_div(num_rows, 64)); }
  int64_t num_blocks() const { return ceil_div(num_rows, rows_a_block()); }
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
void normalize_row(const NormForward& f, int64_t row) {
  const int64_t n = f.num_columns;
  const T* x = static_cast<const T*>(f.x) + row * n;
  const T* w = static_cast<const T*>(f.w);
  const T* b = static_cast<const T*>(f.b);
  T* y = static_cast<T*>(f.y) + row * n;
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
  f.mean[row] = mean;
  f.rstd[row] = rstd;
}

void layer_norm(const NormForward& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) normalize_row<decltype(zero)>(f, row);
    });
  });
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
void backward_row(const NormBackward& f, int64_t row, float* dw, float* db) {
  const int64_t n = f.num_columns;
  const T* dy = static_cast<const T*>(f.dy) + row * n;
  const T* x = static_cast<const T*>(f.x) + row * n;
  const T* w = static_cast<const T*>(f.w);
  T* dx = static_cast<T*>(f.dx) + row * n;
  const Wide mean = broadcast(f.mean[row]), rstd = broadcast(f.rstd[row]);
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
    Wide value = (g - mean_g - normal * mean_gx) * rstd;
    store(dw + i, fma(d, normal, load(dw + i)));
    store(db + i, d + load(db + i));
    if (f.dx_write == Write::Add) value = load_up_to(dx + i, n - i) + value;
    store_up_to(dx + i, value, n - i);
  }
}

/// Sums the partial sums of one parameter in the order of the blocks, and writes the result.
void finish_parameter(const NormBackward& f, const float* partials, int64_t block_stride, float* to,
                      int64_t i) {
  Wide sum = broadcast(0.0f);
  for (int64_t block = 0; block < f.num_blocks(); ++block) {
    sum = sum + load(partials + block * block_stride + i);
  }
  const int64_t left = f.num_columns - i;
  if (f.parameter_write == Write::Add) sum = load_up_to(to + i, left) + sum;
  store_up_to(to + i, sum, left);
}

void layer_norm_gradient(const NormBackward& f, ThreadTeam& team, const Workspace& workspace) {
  const int64_t width = f.padded_columns();
  float* partials = Scratch(workspace).take<float>(f.num_blocks() * 2 * width);
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, f.rows_a_block(), [&](int64_t begin, int64_t end) {
      float* dw = partials + begin / f.rows_a_block() * 2 * width;
      std::fill_n(dw, 2 * width, 0.0f);
      for (int64_t row = begin; row < end; ++row) {
        backward_row<decltype(zero)>(f, row, dw, dw + width);
      }
    });
  });
  for_each_range(team, f.num_columns, 8 * kWide, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kWide) {
      finish_parameter(f, partials, 2 * width, f.dw, i);
      finish_parameter(f, partials + width, 2 * width, f.db, i);
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

namespace {

NormBackward operands(const LayerNormBackward& f) {
  return {f.x.dtype,        f.x.rows(),         f.x.columns(),     f.dx.data, f.dx_write,
          f.dw.as<float>(), f.db.as<float>(),   f.parameter_write, f.dy.data, f.x.data,
          f.w.data,         f.mean.as<float>(), f.rstd.as<float>()};
}

}  // namespace

void LayerNormForward::run(const HostLaunch& host) const {
  const NormForward f{x.dtype,          x.rows(), x.columns(), y.data, mean.as<float>(),
                      rstd.as<float>(), x.data,   w.data,      b.data, epsilon};
  HWY_DYNAMIC_DISPATCH(layer_norm)(f, host.team);
}

size_t LayerNormBackward::workspace_bytes(const HostLaunch&) const {
  const NormBackward f = operands(*this);
  return Scratch::bytes_of<float>(f.num_blocks() * 2 * f.padded_columns());
}

void LayerNormBackward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(layer_norm_gradient)(operands(*this), host.team, host.workspace);
}

}  // namespace ebb
#endif
