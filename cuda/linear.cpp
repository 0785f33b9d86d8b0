#include "cuda/linear.h"

#include "cuda/kernels/gpu_launch.h"

// Bias, GELU and the bias's gradient are computed in the same pass over memory as the product if
// the library can do so, and otherwise by our own kernels. The choice follows from shapes, types
// and the library only, so bits do not change.
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

}  // namespace

bool goes_with_products(Activation activation, const Tensor& before) {
  return activation == Activation::GeluTanh && before.dtype != DType::F32 &&
         before.columns() % 8 == 0;
}

size_t LinearForward::workspace_bytes(const GpuLaunch&) const { return kProductWorkspaceBytes; }
void LinearForward::run(const GpuLaunch& gpu) const { multiply(gpu, product(*this)); }

size_t LinearBackwardInput::workspace_bytes(const GpuLaunch&) const {
  return kProductWorkspaceBytes;
}
void LinearBackwardInput::run(const GpuLaunch& gpu) const { multiply(gpu, product(*this)); }

size_t LinearActivationForward::workspace_bytes(const GpuLaunch&) const {
  return kProductWorkspaceBytes;
}

void LinearActivationForward::run(const GpuLaunch& gpu) const {
  const auto [linear, gelu] = split();
  const MatrixProduct both = with(product(LinearForward{y, x, w, bias}), Epilogue::Gelu, before);
  if (can_multiply(gpu, both)) return multiply(gpu, both);
  linear.run(gpu);
  gelu.run(gpu);
}

size_t ActivationLinearBackward::workspace_bytes(const GpuLaunch&) const {
  return kProductWorkspaceBytes;
}

void ActivationLinearBackward::run(const GpuLaunch& gpu) const {
  const auto [linear, gelu] = split();
  const MatrixProduct both = with(product(linear), Epilogue::GeluSlope, before);
  if (can_multiply(gpu, both)) return multiply(gpu, both);
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
  if (!dbias) return multiply(gpu, alone);
  std::byte* const sums = gpu.scratch<std::byte>(workspace_bytes(gpu)) + kProductWorkspaceBytes;
  MatrixProduct both = alone;
  both.b_sums = write == Write::Store ? dbias.as<float>() : reinterpret_cast<float*>(sums);
  if (dy.dtype == DType::F32 || !can_multiply(gpu, both)) {
    multiply(gpu, alone);
    return cuda::column_sums(gpu.stream, dbias, dy, write, reinterpret_cast<float*>(sums));
  }
  multiply(gpu, both);
  if (write == Write::Add) Add{dbias, dbias, {sums, DType::F32, dbias.shape}}.run(gpu);
}

}  // namespace ebb
