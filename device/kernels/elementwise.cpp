#include "device/kernels/elementwise.h"

#include <string>

#include "device/kernels/checks.h"

namespace ebb {
namespace {

void check_swiglu(const Tensor& x, const Tensor& y, const char* kernel) {
  EBB_CHECK_TENSORS(is_float(x.dtype) && y.dtype == x.dtype && y.rows() == x.rows() &&
                        x.columns() == 2 * y.columns(),
                    std::string(kernel) + ": x (N, 2F) and y (N, F) of one float type", x, y);
}

}  // namespace

Cost ActivationForward::check() const {
  EBB_CHECK_TENSORS(is_float(x.dtype) && alike(y, x),
                    "activation_forward: y and x of one float type and size", y, x);
  return vector_cost(20.0 * count(x), total_bytes(y, x), "activation_forward");
}

Cost ActivationBackward::check() const {
  EBB_CHECK_TENSORS(is_float(x.dtype) && alike(dx, x) && alike(dy, x),
                    "activation_backward: dx, dy and x of one float type and size", dx, dy, x);
  return vector_cost(30.0 * count(x), total_bytes(dx, dy, x), "activation_backward");
}

Cost SwigluForward::check() const {
  check_swiglu(x, y, "swiglu_forward");
  return vector_cost(20.0 * count(y), total_bytes(y, x), "swiglu_forward");
}

Cost SwigluBackward::check() const {
  check_swiglu(x, dy, "swiglu_backward");
  EBB_CHECK_TENSORS(same_matrix(dx, x), "swiglu_backward: dx must look like x", dx, x);
  return vector_cost(28.0 * count(dy), total_bytes(dx, dy, x), "swiglu_backward");
}

Cost Add::check() const {
  EBB_CHECK_TENSORS(is_float(y.dtype) && alike(y, a) && alike(y, b),
                    "add: y, a and b of one float type and size", y, a, b);
  return {.flops = count(y), .bytes = total_bytes(y, a, b), .name = "add"};
}

Cost Multiply::check() const {
  EBB_CHECK_TENSORS(is_float(y.dtype) && alike(y, a) && alike(y, b),
                    "multiply: y, a and b of one float type and size", y, a, b);
  return {.flops = count(y) * (write == Write::Add ? 2 : 1),
          .bytes = total_bytes(y, a, b) + (write == Write::Add ? total_bytes(y) : 0),
          .name = "multiply"};
}

Cost CopyColumns::check() const {
  const auto has_columns = [this](const Tensor& tensor, int64_t first) {
    return first >= 0 && num_columns >= 0 && first + num_columns <= tensor.columns();
  };
  EBB_CHECK_TENSORS(is_float(to.dtype) && from.dtype == to.dtype && from.rows() == to.rows() &&
                        has_columns(to, to_first) && has_columns(from, from_first),
                    "copy_columns: " + std::to_string(num_columns) + " columns, from column " +
                        std::to_string(from_first) + " on to column " + std::to_string(to_first) +
                        " on, of as many rows of one float type",
                    to, from);
  const double elements = static_cast<double>(to.rows()) * static_cast<double>(num_columns);
  const double accesses = write == Write::Add ? 3 : 2;
  return {.flops = write == Write::Add ? elements : 0,
          .bytes = accesses * elements * static_cast<double>(size_of(to.dtype)),
          .name = "copy_columns"};
}

Cost Accumulate::check() const {
  EBB_CHECK_TENSORS(is_float(y.dtype) && is_float(x.dtype) && y.num_elements() == x.num_elements(),
                    "accumulate: y and x of float types and one size", y, x);
  const bool adds = write == Write::Add;
  return {.flops = adds ? count(y) : 0,
          .bytes = total_bytes(y, x) + (adds ? total_bytes(y) : 0),
          .name = "accumulate"};
}

Cost FillZero::check() const { return {.bytes = total_bytes(y), .name = "fill_zero"}; }

Cost ApplyDropout::check() const {
  EBB_CHECK_TENSORS(is_float(x.dtype) && x.shape.rank() >= 1 && x.dim(0) > 0 &&
                        x.num_elements() / x.dim(0) <= int64_t{4} << 32,
                    "dropout: x (B, ...) of a float type, at most 2^34 numbers a row", x);
  EBB_CHECK(dropout.probability > 0 && dropout.probability < 1,
            "dropout: a probability above 0 and below 1");
  // Ten rounds of two products and four other operations make four words.
  return vector_cost(15 * count(x), total_bytes(x, x), "dropout");
}

Cost RotaryTable::check() const {
  EBB_CHECK_SHAPES(!frequencies.empty() && table.dtype == DType::F32 &&
                       table.columns() == 2 * static_cast<int64_t>(frequencies.size()),
                   "rotary_table: table (N, D) fp32 and D / 2 frequencies, not " +
                       std::to_string(frequencies.size()) + " and table " + to_string(table));
  EBB_CHECK_TENSORS(is_vector(positions, DType::I32, table.rows()),
                    "rotary_table: positions (N) int32", positions, table);
  // A sine in fp64 takes some 40 operations of ordinary code.
  return vector_cost(40.0 * count(table), total_bytes(table, positions), "rotary_table");
}

Cost ApplyRotary::check() const {
  const int64_t n = x.rows(), width = table.columns();
  EBB_CHECK_TENSORS(
      is_float(x.dtype) && table.dtype == DType::F32 && table.rows() == n && width % 2 == 0,
      "rotary: x (N, C) of a float type, table (N, D) fp32 with D even", x, table);
  EBB_CHECK_SHAPES(num_heads > 0 && num_heads * width <= x.columns(),
                   "rotary: x (N, C) of " + std::to_string(num_heads) + " heads of " +
                       std::to_string(width) + " columns, not x " + to_string(x));
  const double elements = static_cast<double>(n * num_heads * width);
  return vector_cost(3.0 * elements,
                     2.0 * elements * static_cast<double>(size_of(x.dtype)) + total_bytes(table),
                     "rotary");
}

}  // namespace ebb
