#include "device/host/kernels/gemm.h"
#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/linear.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kRowsAtOnce = 64;  // fixed, because it determines the order of the sums

template <class T>
Wide sum_of_column(const T* x, int64_t num_rows, int64_t stride, int64_t width) {
  Wide total = broadcast(0.0f);
  for (int64_t first = 0; first < num_rows; first += kRowsAtOnce) {
    Wide block = broadcast(0.0f);
    for (int64_t r = first; r < std::min(num_rows, first + kRowsAtOnce); ++r) {
      block = block + load_up_to(x + r * stride, width);
    }
    total = total + block;
  }
  return total;
}

void sum_columns(ThreadTeam& team, const Tensor& to, const Tensor& x, Write write) {
  const int64_t num_rows = x.rows(), num_columns = x.columns();
  float* sums = to.as<float>();
  with_float_type(x.dtype, [&](auto zero) {
    const auto* data = reinterpret_cast<const decltype(zero)*>(x.data);
    for_each_range(team, num_columns, kWide, [&](int64_t begin, int64_t end) HWY_ATTR {
      const Wide value = sum_of_column(data + begin, num_rows, num_columns, end - begin);
      write_up_to(sums + begin, value, end - begin, write);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(sum_columns);

namespace {

GemmOperand as_stored(const Tensor& t) { return {t.data, t.dtype, t.columns(), 1}; }
GemmOperand transposed(const Tensor& t) { return {t.data, t.dtype, 1, t.columns()}; }

Gemm product(const LinearForward& f) {
  return {.m = f.x.rows(),
          .n = f.w.dim(0),
          .k = f.w.dim(1),
          .a = as_stored(f.x),
          .b = transposed(f.w),
          .c = f.y.data,
          .c_dtype = f.y.dtype,
          .bias = f.bias.data,
          .write = f.residual ? Write::Add : Write::Store,
          .old = f.residual.data};
}

Gemm product(const LinearBackwardInput& f) {
  return {.m = f.dy.rows(),
          .n = f.w.dim(1),
          .k = f.w.dim(0),
          .a = as_stored(f.dy),
          .b = as_stored(f.w),
          .c = f.dx.data,
          .c_dtype = f.dx.dtype,
          .write = f.write};
}

Gemm product(const LinearBackwardWeight& f) {
  return {.m = f.dw.dim(0),
          .n = f.dw.dim(1),
          .k = f.x.rows(),
          .a = transposed(f.dy),
          .b = as_stored(f.x),
          .c = f.dw.data,
          .c_dtype = DType::F32,
          .write = f.write,
          .read_late = true};
}

size_t workspace_bytes_of(const Gemm& gemm, const HostLaunch& host) {
  return gemm_workspace_bytes(gemm, host.team.num_threads());
}

void check_no_padding(const Tensor& tensor, int64_t columns) {
  EBB_CHECK(tensor.columns() == columns, "the host multiplies no matrix with padding");
}

void run_product(const Gemm& gemm, const HostLaunch& host) {
  run_gemm(gemm, host.arithmetic, host.team, host.workspace);
}

}  // namespace

size_t LinearForward::workspace_bytes(const HostLaunch& host) const {
  check_no_padding(y, w.dim(0));
  return workspace_bytes_of(product(*this), host);
}
void LinearForward::run(const HostLaunch& host) const { run_product(product(*this), host); }

size_t LinearBackwardInput::workspace_bytes(const HostLaunch& host) const {
  check_no_padding(dy, w.dim(0));
  return workspace_bytes_of(product(*this), host);
}
void LinearBackwardInput::run(const HostLaunch& host) const { run_product(product(*this), host); }

size_t LinearBackwardWeight::workspace_bytes(const HostLaunch& host) const {
  check_no_padding(dy, dw.dim(0));
  return workspace_bytes_of(product(*this), host);
}
void LinearBackwardWeight::run(const HostLaunch& host) const {
  run_product(product(*this), host);
  if (dbias) HWY_DYNAMIC_DISPATCH(sum_columns)(host.team, dbias, dy, write);
}

}  // namespace ebb
#endif
