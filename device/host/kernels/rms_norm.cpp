#include <cmath>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/rms_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

#ifndef EBB_HOST_KERNELS_RMS_NORM_ARGUMENTS_
#define EBB_HOST_KERNELS_RMS_NORM_ARGUMENTS_
namespace ebb {
namespace {

/// Rows of heads. Each head is normalised separately, with one of two weights. Columns after the
/// heads stay unchanged. For the norm of whole rows, a row is one head.
struct RmsHeads {
  DType dtype;
  int64_t num_rows, num_columns, width;
  HeadCounts count;  // heads with the first and the second weight
  const void *x, *wq, *wk;
  float* rstd;  // (rows, heads)

  int64_t num_heads() const { return count.queries + count.keys; }
  const void* weight_of(int64_t head) const { return head < count.queries ? wq : wk; }
};

struct RmsForward : RmsHeads {
  void* y;
  float epsilon;
};

struct RmsBackward : RmsHeads {
  void* dx;  // may be dy
  const void* dy;
  Write dx_write;
  float *dwq, *dwk;
  Write parameter_write;

  // Rows are summed in blocks whose number and size depend only on the shape.
  int64_t rows_a_block() const { return std::max<int64_t>(64, ceil_div(num_rows, 64)); }
  int64_t num_blocks() const { return ceil_div(num_rows, rows_a_block()); }
  int64_t padded_width() const { return round_up(width, 16); }
  int64_t block_floats() const { return (count.keys > 0 ? 2 : 1) * padded_width(); }
};

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

/// Normalises one head and returns its rstd.
template <class T>
float normalize_head(const T* x, const T* w, T* y, int64_t n, float epsilon) {
  const Wide squares = sum_over(n, broadcast(0.0f), [&](int64_t i, const Wide& s) HWY_ATTR {
    const Wide v = load_up_to(x + i, n - i);
    return fma(v, v, s);
  });
  const float rstd = 1.0f / std::sqrt(reduce_add(squares) / static_cast<float>(n) + epsilon);
  const Wide rstd_wide = broadcast(rstd);
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide normal = load_up_to(x + i, n - i) * rstd_wide;
    store_up_to(y + i, normal * load_up_to(w + i, n - i), n - i);
  }
  return rstd;
}

template <class T>
void normalize_row(const RmsForward& f, int64_t row) {
  const T* x = static_cast<const T*>(f.x) + row * f.num_columns;
  T* y = static_cast<T*>(f.y) + row * f.num_columns;
  for (int64_t head = 0; head < f.num_heads(); ++head) {
    const int64_t first = head * f.width;
    f.rstd[row * f.num_heads() + head] = normalize_head(
        x + first, static_cast<const T*>(f.weight_of(head)), y + first, f.width, f.epsilon);
  }
  const int64_t done = f.num_heads() * f.width;
  std::copy_n(x + done, f.num_columns - done, y + done);
}

void rms_norm(const RmsForward& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) normalize_row<decltype(zero)>(f, row);
    });
  });
}

/// Computes dx = rstd (g - xhat mean(g xhat)) with g = dy w, and adds dy xhat to dw.
template <class T>
void backward_head(const RmsBackward& f, int64_t row, int64_t head, float* dw) {
  const int64_t n = f.width, first = row * f.num_columns + head * n;
  const T* dy = static_cast<const T*>(f.dy) + first;
  const T* x = static_cast<const T*>(f.x) + first;
  const T* w = static_cast<const T*>(f.weight_of(head));
  T* dx = static_cast<T*>(f.dx) + first;
  const Wide rstd = broadcast(f.rstd[row * f.num_heads() + head]);
  const Wide sum = sum_over(n, broadcast(0.0f), [&](int64_t i, const Wide& s) HWY_ATTR {
    const Wide g = load_up_to(dy + i, n - i) * load_up_to(w + i, n - i);
    return fma(g, load_up_to(x + i, n - i) * rstd, s);
  });
  const Wide mean = broadcast(reduce_add(sum) / static_cast<float>(n));
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide d = load_up_to(dy + i, n - i), normal = load_up_to(x + i, n - i) * rstd;
    const Wide value = (d * load_up_to(w + i, n - i) - normal * mean) * rstd;
    store(dw + i, fma(d, normal, load(dw + i)));
    write_up_to(dx + i, value, n - i, f.dx_write);
  }
}

/// Sums the partial sums of one weight in the order of the blocks, and writes the result.
void finish_weight(const RmsBackward& f, const float* partials, float* to, int64_t i) {
  Wide sum = broadcast(0.0f);
  for (int64_t block = 0; block < f.num_blocks(); ++block) {
    sum = sum + load(partials + block * f.block_floats() + i);
  }
  write_up_to(to + i, sum, f.width - i, f.parameter_write);
}

void rms_norm_gradient(const RmsBackward& f, ThreadTeam& team, const Workspace& workspace) {
  float* partials = Scratch(workspace).take<float>(f.num_blocks() * f.block_floats());
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, f.rows_a_block(), [&](int64_t begin, int64_t end) {
      float* dw = partials + begin / f.rows_a_block() * f.block_floats();
      std::fill_n(dw, f.block_floats(), 0.0f);
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t head = 0; head < f.num_heads(); ++head) {
          float* sums = head < f.count.queries ? dw : dw + f.padded_width();
          backward_head<decltype(zero)>(f, row, head, sums);
        }
      }
    });
  });
  for_each_range(team, f.width, 8 * kWide, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kWide) {
      finish_weight(f, partials, f.dwq, i);
      if (f.count.keys > 0) finish_weight(f, partials + f.padded_width(), f.dwk, i);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(rms_norm);
HWY_EXPORT(rms_norm_gradient);

namespace {

RmsHeads whole_rows(const Tensor& x, const Tensor& w, const Tensor& rstd) {
  const int64_t n = x.rows(), c = x.columns();
  return {x.dtype, n, c, c, {1, 0}, x.data, w.data, nullptr, rstd.as<float>()};
}

RmsHeads heads_of_rows(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& rstd,
                       const HeadCounts& heads) {
  const int64_t n = x.rows(), width = wq.num_elements();
  return {x.dtype, n, x.columns(), width, heads, x.data, wq.data, wk.data, rstd.as<float>()};
}

RmsBackward operands(const RmsNormBackward& f) {
  return {whole_rows(f.x, f.w, f.rstd),
          f.dx.data,
          f.dy.data,
          f.dx_write,
          f.dw.as<float>(),
          nullptr,
          f.parameter_write};
}

RmsBackward operands(const HeadNormBackward& f) {
  return {heads_of_rows(f.x, f.wq, f.wk, f.rstd, f.heads),
          f.gradient.data,
          f.gradient.data,
          Write::Store,
          f.dwq.as<float>(),
          f.dwk.as<float>(),
          f.parameter_write};
}

size_t backward_workspace_bytes(const RmsBackward& f) {
  return Scratch::bytes_of<float>(f.num_blocks() * f.block_floats());
}

}  // namespace

void RmsNormForward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(rms_norm)({whole_rows(x, w, rstd), y.data, epsilon}, host.team);
}

size_t RmsNormBackward::workspace_bytes(const HostLaunch&) const {
  return backward_workspace_bytes(operands(*this));
}

void RmsNormBackward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(rms_norm_gradient)(operands(*this), host.team, host.workspace);
}

void HeadNormForward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(rms_norm)
  ({heads_of_rows(x, wq, wk, rstd, heads), y.data, epsilon}, host.team);
}

size_t HeadNormBackward::workspace_bytes(const HostLaunch&) const {
  return backward_workspace_bytes(operands(*this));
}

void HeadNormBackward::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(rms_norm_gradient)(operands(*this), host.team, host.workspace);
}

}  // namespace ebb
#endif
