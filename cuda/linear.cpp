#include "cuda/linear.h"

#include "cuda/kernels/gpu_launch.h"

// Bias, residual, GELU and the bias's gradient are computed in the same pass over memory as the
// product if the library can do so, and otherwise by our own kernels. The choice follows
// from shapes, types, alignments, the architecture and the library, so bits do not change.
namespace ebb {
namespace {

/// A row-major tensor is its transpose in column-major order. So y = x w^T becomes y^T = w x^T.
ColumnMajor columns_of(const Tensor& t) { return {t.data, t.columns(), false}; }
ColumnMajor transposed(const Tensor& t) { return {t.data, t.columns(), true}; }

/// y^T = w x^T
MatrixProduct product(const LinearForward& f) {
  return {.m = f.w.dim(0),
          .n = f.x.rows(),
          .k = f.w.dim(1),
          .dtype = f.x.dtype,
          .d_dtype = f.y.dtype,
          .a = transposed(f.w),
          .b = columns_of(f.x),
          .d = f.y.data,
          .d_stride = f.y.columns(),
          .write = f.residual ? Write::Add : Write::Store,
          .old = f.residual.data,
          .bias = f.bias.data};
}

/// dx^T = w^T dy^T
MatrixProduct product(const LinearBackwardInput& f) {
  return {.m = f.w.dim(1),
          .n = f.dy.rows(),
          .k = f.w.dim(0),
          .dtype = f.dy.dtype,
          .d_dtype = f.dx.dtype,
          .a = columns_of(f.w),
          .b = columns_of(f.dy),
          .d = f.dx.data,
          .d_stride = f.dx.columns(),
          .write = f.write};
}

/// dw^T = x^T dy
MatrixProduct product(const LinearBackwardWeight& f) {
  return {.m = f.dw.dim(1),
          .n = f.dw.dim(0),
          .k = f.x.rows(),
          .dtype = f.x.dtype,
          .d_dtype = DType::F32,
          .a = columns_of(f.x),
          .b = transposed(f.dy),
          .d = f.dw.data,
          .d_stride = f.dw.columns(),
          .write = f.write};
}

MatrixProduct with(MatrixProduct product, Epilogue epilogue, const Tensor& before) {
  product.epilogue = epilogue;
  product.before = before.data;
  return product;
}

bool can_multiply(const GpuLaunch& gpu, const MatrixProduct& p) {
  return p.m > 0 && p.n > 0 && gpu.products->can_multiply(p);
}

void multiply(const GpuLaunch& gpu, const MatrixProduct& p) {
  if (p.m == 0 || p.n == 0) return;
  gpu.products->multiply(gpu.stream, p, gpu.scratch<std::byte>(kProductWorkspaceBytes));
}

/// How many columns of a matrix (N, columns), which may have padding, one product computes. A
/// product of 16-bit types whose number of columns is no multiple of 8 is up to seven times slower,
/// even if the rows begin at multiples of 16 bytes (bench_gpu gemm, an H200). So the last columns
/// of a large matrix have a product of their own.
int64_t columns_at_once(const Tensor& matrix, int64_t columns) {
  constexpr int64_t kMultiple = 8, kLarge = 1024;
  const bool is_slow = matrix.dtype != DType::F32 && columns % kMultiple != 0;
  const bool is_cut = is_slow && columns >= kLarge && matrix.columns() % kMultiple == 0;
  return is_cut ? columns / kMultiple * kMultiple : columns;
}

const void* moved(const void* data, int64_t elements, DType dtype) {
  const auto* bytes = static_cast<const std::byte*>(data);
  return bytes == nullptr ? nullptr : bytes + elements * static_cast<int64_t>(size_of(dtype));
}
void* moved(void* data, int64_t elements, DType dtype) {
  return const_cast<void*>(moved(static_cast<const void*>(data), elements, dtype));
}

/// Rows [first, first + count) of d.
MatrixProduct part_of_m(MatrixProduct p, int64_t first, int64_t count) {
  p.m = count;
  p.a.data = moved(p.a.data, p.a.transposed ? first * p.a.stride : first, p.dtype);
  p.d = moved(p.d, first, p.d_dtype);
  p.old = moved(p.old, first, p.d_dtype);
  p.bias = moved(p.bias, first, p.dtype);
  return p;
}
/// Columns [first, first + count) of d.
MatrixProduct part_of_n(MatrixProduct p, int64_t first, int64_t count) {
  p.n = count;
  p.b.data = moved(p.b.data, p.b.transposed ? first : first * p.b.stride, p.dtype);
  p.d = moved(p.d, first * p.d_stride, p.d_dtype);
  p.old = moved(p.old, first * p.d_stride, p.d_dtype);
  if (p.b_sums != nullptr) p.b_sums += first;
  return p;
}
/// The terms [first, first + count) of the sums.
MatrixProduct part_of_k(MatrixProduct p, int64_t first, int64_t count) {
  p.k = count;
  p.a.data = moved(p.a.data, p.a.transposed ? first : first * p.a.stride, p.dtype);
  p.b.data = moved(p.b.data, p.b.transposed ? first * p.b.stride : first, p.dtype);
  return p;
}

/// Calls f(first, count) for the columns that are computed at once, and for the rest.
template <class F>
void for_each_part(int64_t columns, int64_t at_once, const F& f) {
  f(int64_t{0}, at_once);
  if (at_once < columns) f(at_once, columns - at_once);
}

/// The fp32 sums of a product whose terms are computed in two parts, if they need memory of their
/// own: parts are not rounded, and are not added to an old value one by one.
size_t sums_bytes(const LinearBackwardInput& f) {
  const int64_t terms = f.w.dim(0);
  const bool in_place = f.dx.dtype == DType::F32 && f.write == Write::Store;
  if (in_place || columns_at_once(f.dy, terms) == terms) return 0;
  return static_cast<size_t>(f.dx.num_elements()) * sizeof(float);
}

}  // namespace

bool goes_with_products(Activation activation, const Tensor& before) {
  return activation == Activation::GeluTanh && before.dtype != DType::F32 &&
         before.columns() % 8 == 0;
}

size_t LinearForward::workspace_bytes(const GpuLaunch&) const { return kProductWorkspaceBytes; }
void LinearForward::run(const GpuLaunch& gpu) const {
  // With a residual, y has no padding, so one product computes all columns.
  if (residual && !can_multiply(gpu, product(*this))) {
    LinearForward{y, x, w, bias}.run(gpu);
    return Add{y, y, residual}.run(gpu);
  }
  for_each_part(w.dim(0), columns_at_once(y, w.dim(0)), [&](int64_t first, int64_t count) {
    multiply(gpu, part_of_m(product(*this), first, count));
  });
}

size_t LinearBackwardInput::workspace_bytes(const GpuLaunch&) const {
  return kProductWorkspaceBytes + sums_bytes(*this);
}

void LinearBackwardInput::run(const GpuLaunch& gpu) const {
  MatrixProduct p = product(*this);
  Tensor sums;
  if (sums_bytes(*this) > 0) {
    std::byte* const memory = gpu.scratch<std::byte>(workspace_bytes(gpu)) + kProductWorkspaceBytes;
    sums = {memory, DType::F32, dx.shape};
    p.d = memory, p.d_dtype = DType::F32, p.write = Write::Store;
  }
  for_each_part(p.k, columns_at_once(dy, p.k), [&](int64_t first, int64_t count) {
    multiply(gpu, part_of_k(p, first, count));
    p.write = Write::Add;
  });
  if (!sums) return;
  if (write == Write::Add) return Add{dx, dx, sums}.run(gpu);
  RoundGradient{dx, sums, {}, {}}.run(gpu);
}

size_t ActivationLinearBackward::workspace_bytes(const GpuLaunch& gpu) const {
  return split().first.workspace_bytes(gpu);
}

void ActivationLinearBackward::run(const GpuLaunch& gpu) const {
  const auto [linear, gelu] = split();
  const MatrixProduct both = with(product(linear), Epilogue::GeluSlope, before);
  // cuBLASLt's slope for fp16 is less exact than our tests allow (docs/decisions.md).
  if (w.dtype == DType::BF16 && can_multiply(gpu, both)) return multiply(gpu, both);
  linear.run(gpu);
  gelu.run(gpu);
}

size_t LinearBackwardWeight::workspace_bytes(const GpuLaunch&) const {
  return kProductWorkspaceBytes + (dbias ? cuda::column_sums_floats(dy) * sizeof(float) : 0);
}

/// With Write::Add, the gradient of the bias is first computed in workspace and then added.
void LinearBackwardWeight::run(const GpuLaunch& gpu) const {
  if (x.rows() == 0) {  // no rows: all sums are 0
    if (write == Write::Store) FillZero{dw}.run(gpu);
    if (write == Write::Store && dbias) FillZero{dbias}.run(gpu);
    return;
  }
  const MatrixProduct alone = product(*this);
  const auto multiply_parts = [&](const MatrixProduct& p) {
    for_each_part(p.n, columns_at_once(dy, p.n),
                  [&](int64_t first, int64_t count) { multiply(gpu, part_of_n(p, first, count)); });
  };
  if (!dbias) return multiply_parts(alone);
  std::byte* const sums = gpu.scratch<std::byte>(workspace_bytes(gpu)) + kProductWorkspaceBytes;
  MatrixProduct both = alone;
  both.b_sums = write == Write::Store ? dbias.as<float>() : reinterpret_cast<float*>(sums);
  bool with_sums = dy.dtype != DType::F32;
  for_each_part(both.n, columns_at_once(dy, both.n), [&](int64_t first, int64_t count) {
    with_sums = with_sums && can_multiply(gpu, part_of_n(both, first, count));
  });
  if (!with_sums) {
    multiply_parts(alone);
    return cuda::column_sums(gpu.stream, dbias, dy, write, reinterpret_cast<float*>(sums));
  }
  multiply_parts(both);
  if (write == Write::Add) Add{dbias, dbias, {sums, DType::F32, dbias.shape}}.run(gpu);
}

}  // namespace ebb
