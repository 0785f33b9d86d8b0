#include "device/host/kernels/gemm.h"
#include "device/host/kernels/host_kernels.h"
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
      Wide value = sum_of_column(data + begin, num_rows, num_columns, end - begin);
      if (write == Write::Add) value = load_up_to(sums + begin, end - begin) + value;
      store_up_to(sums + begin, value, end - begin);
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

}  // namespace

void HostKernels::linear_forward(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  Cost cost = check_linear_forward(y, x, w, bias);
  const Gemm gemm{.m = x.rows(),
                  .n = w.dim(0),
                  .k = w.dim(1),
                  .a = as_stored(x),
                  .b = transposed(w),
                  .c = y.data,
                  .c_dtype = y.dtype,
                  .bias = bias.data};
  cost.workspace_bytes = gemm_workspace_bytes(gemm, team_.num_threads());
  stream.submit(cost, [this, gemm] { run_gemm(gemm, arithmetic_, team_, workspace_); });
}

void HostKernels::linear_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w,
                                        Write write) {
  Cost cost = check_linear_backward_input(dx, dy, w);
  const Gemm gemm{.m = dy.rows(),
                  .n = w.dim(1),
                  .k = w.dim(0),
                  .a = as_stored(dy),
                  .b = as_stored(w),
                  .c = dx.data,
                  .c_dtype = dx.dtype,
                  .write = write};
  cost.workspace_bytes = gemm_workspace_bytes(gemm, team_.num_threads());
  stream.submit(cost, [this, gemm] { run_gemm(gemm, arithmetic_, team_, workspace_); });
}

void HostKernels::linear_backward_weight(Stream& stream, Tensor dw, Tensor dbias, Tensor dy,
                                         Tensor x, Write write) {
  Cost cost = check_linear_backward_weight(dw, dbias, dy, x);
  const Gemm gemm{.m = dw.dim(0),
                  .n = dw.dim(1),
                  .k = x.rows(),
                  .a = transposed(dy),
                  .b = as_stored(x),
                  .c = dw.data,
                  .c_dtype = DType::F32,
                  .write = write,
                  .read_late = true};
  cost.workspace_bytes = gemm_workspace_bytes(gemm, team_.num_threads());
  stream.submit(cost, [this, gemm, dbias, dy] {
    run_gemm(gemm, arithmetic_, team_, workspace_);
    if (!dbias) return;
    const auto run = HWY_DYNAMIC_DISPATCH(sum_columns);
    run(team_, dbias, dy, gemm.write);
  });
}

}  // namespace ebb
#endif
