#include "cuda/linear_layers.h"

#include <string>

#include "cuda/kernels/launches.h"
#include "device/errors.h"

namespace ebb {
namespace {

/// A row-major tensor is its transpose in column-major order. So y = x w^T becomes y^T = w x^T.
ColumnMajor columns_of(const Tensor& t) { return {t.data, t.columns(), false}; }
ColumnMajor transposed(const Tensor& t) { return {t.data, t.columns(), true}; }

/// y^T = w x^T
MatrixProduct forward_product(const Tensor& y, const Tensor& x, const Tensor& w,
                              const Tensor& bias) {
  return {.m = w.dim(0),
          .n = x.rows(),
          .k = w.dim(1),
          .dtype = x.dtype,
          .d_dtype = y.dtype,
          .a = transposed(w),
          .b = columns_of(x),
          .d = y.data,
          .bias = bias.data};
}

/// dx^T = w^T dy^T
MatrixProduct input_product(const Tensor& dx, const Tensor& dy, const Tensor& w, Write write) {
  return {.m = w.dim(1),
          .n = dy.rows(),
          .k = w.dim(0),
          .dtype = dy.dtype,
          .d_dtype = dx.dtype,
          .a = columns_of(w),
          .b = columns_of(dy),
          .d = dx.data,
          .write = write};
}

/// dw^T = x^T dy
MatrixProduct weight_product(const Tensor& dw, const Tensor& dy, const Tensor& x, Write write) {
  return {.m = dw.dim(1),
          .n = dw.dim(0),
          .k = x.rows(),
          .dtype = x.dtype,
          .d_dtype = DType::F32,
          .a = columns_of(x),
          .b = transposed(dy),
          .d = dw.data,
          .write = write};
}

MatrixProduct with(MatrixProduct product, Epilogue epilogue, const Tensor& before) {
  product.epilogue = epilogue;
  product.before = before.data;
  return product;
}

void zero(cudaStream_t stream, const Tensor& t) {
  if (t.bytes() == 0) return;
  const cudaError_t status = cudaMemsetAsync(t.data, 0, t.bytes(), stream);
  if (status == cudaSuccess) return;
  throw DeviceError(std::string("linear_backward_weight: ") + cudaGetErrorString(status));
}

size_t column_sums_bytes(const Tensor& dy) {
  return cuda::column_sums_floats(dy.rows(), dy.columns()) * sizeof(float);
}

}  // namespace

bool goes_with_products(Activation activation, const Tensor& before) {
  return activation == Activation::GeluTanh && before.dtype != DType::F32 &&
         before.columns() % 8 == 0;
}

LinearLayers::LinearLayers(std::unique_ptr<MatrixProducts> products)
    : products_(std::move(products)) {}

bool LinearLayers::can_multiply(const MatrixProduct& p) {
  return p.m > 0 && p.n > 0 && products_->can_multiply(p);
}

void LinearLayers::multiply(cudaStream_t stream, const MatrixProduct& p, std::byte* workspace) {
  if (p.m > 0 && p.n > 0) products_->multiply(stream, p, workspace);
}

void LinearLayers::forward(cudaStream_t stream, const Tensor& y, const Tensor& x, const Tensor& w,
                           const Tensor& bias, std::byte* workspace) {
  multiply(stream, forward_product(y, x, w, bias), workspace);
}

void LinearLayers::forward_with_gelu(cudaStream_t stream, const Tensor& y, const Tensor& before,
                                     const Tensor& x, const Tensor& w, const Tensor& bias,
                                     std::byte* workspace) {
  const MatrixProduct both = with(forward_product(y, x, w, bias), Epilogue::Gelu, before);
  if (can_multiply(both)) return multiply(stream, both, workspace);
  forward(stream, before, x, w, bias, workspace);
  cuda::activation_forward(stream, y, before, Activation::GeluTanh);
}

void LinearLayers::backward_input(cudaStream_t stream, const Tensor& dx, const Tensor& dy,
                                  const Tensor& w, Write write, std::byte* workspace) {
  multiply(stream, input_product(dx, dy, w, write), workspace);
}

void LinearLayers::backward_input_with_gelu(cudaStream_t stream, const Tensor& dbefore,
                                            const Tensor& dy, const Tensor& w, const Tensor& before,
                                            std::byte* workspace) {
  const MatrixProduct product = input_product(dbefore, dy, w, Write::Store);
  const MatrixProduct both = with(product, Epilogue::GeluSlope, before);
  if (can_multiply(both)) return multiply(stream, both, workspace);
  multiply(stream, product, workspace);
  cuda::activation_backward(stream, dbefore, dbefore, before, Activation::GeluTanh, Write::Store);
}

size_t LinearLayers::weight_workspace_bytes(const Tensor& dbias, const Tensor& dy) {
  return kProductWorkspaceBytes + (dbias ? column_sums_bytes(dy) : 0);
}

/// With Write::Add, the gradient of the bias is first computed in workspace and then added.
void LinearLayers::backward_weight(cudaStream_t stream, const Tensor& dw, const Tensor& dbias,
                                   const Tensor& dy, const Tensor& x, Write write,
                                   std::byte* workspace) {
  if (x.rows() == 0) {  // no rows: all sums are 0
    if (write == Write::Store) zero(stream, dw);
    if (write == Write::Store && dbias) zero(stream, dbias);
    return;
  }
  const MatrixProduct product = weight_product(dw, dy, x, write);
  if (!dbias) return multiply(stream, product, workspace);
  auto* const sums = reinterpret_cast<float*>(workspace + kProductWorkspaceBytes);
  MatrixProduct both = product;
  both.b_sums = write == Write::Store ? dbias.as<float>() : sums;
  if (dy.dtype == DType::F32 || !can_multiply(both)) {
    multiply(stream, product, workspace);
    return cuda::column_sums(stream, dbias, dy, write, sums);
  }
  multiply(stream, both, workspace);
  if (write == Write::Store) return;
  cuda::add(stream, dbias, dbias, {reinterpret_cast<std::byte*>(sums), DType::F32, dbias.shape});
}

}  // namespace ebb
