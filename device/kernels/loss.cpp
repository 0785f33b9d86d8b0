#include "device/kernels/loss.h"

#include <string>

#include "device/kernels/checks.h"

namespace ebb {
namespace {

void check_columns(const Tensor& logits, int64_t num_classes) {
  const int64_t padding = logits.columns() - num_classes;
  EBB_CHECK_TENSORS(padding >= 0 && padding < kMostPadding,
                    "cross_entropy: " + std::to_string(num_classes) + " classes", logits);
}

void check_slice(const Tensor& statistics, const Tensor& logits, const Tensor& targets,
                 ClassSlice slice) {
  const int64_t n = logits.rows();
  EBB_CHECK_TENSORS(is_float(logits.dtype), "cross_entropy: logits of a float type", logits);
  EBB_CHECK_TENSORS(statistics.rows() == n && statistics.columns() == 3 &&
                        statistics.dtype == DType::F32 && is_vector(targets, DType::I32, n),
                    "cross_entropy: statistics (N, 3) fp32, targets (N) int32", statistics, targets,
                    logits);
  check_columns(logits, slice.count);
  EBB_CHECK(slice.first >= 0 && slice.first + slice.count <= slice.num_classes,
            "cross_entropy: classes " + std::to_string(slice.first) + " to " +
                std::to_string(slice.first + slice.count) + " of " +
                std::to_string(slice.num_classes));
}

}  // namespace

Cost CrossEntropy::check() const {
  const int64_t n = logits.rows();
  EBB_CHECK_TENSORS(is_float(logits.dtype), "cross_entropy: logits of a float type", logits);
  EBB_CHECK_TENSORS(is_vector(losses, DType::F32, n) && is_vector(targets, DType::I32, n),
                    "cross_entropy: losses (N) fp32, targets (N) int32", losses, targets, logits);
  check_columns(logits, width());
  const double passes = gradient_scale ? 2.0 : 1.0;
  return vector_cost(10.0 * passes * count(logits),
                     total_bytes(losses, targets) + passes * total_bytes(logits), "cross_entropy");
}

Cost CrossEntropyStatistics::check() const {
  check_slice(statistics, logits, targets, slice);
  EBB_CHECK_TENSORS(is_vector(losses, DType::F32, logits.rows()), "cross_entropy: losses (N) fp32",
                    losses, logits);
  return {.flops = 10.0 * count(logits),
          .bytes = total_bytes(slice.is_last() ? losses : Tensor{}, statistics, logits, targets),
          .name = "cross_entropy_statistics"};
}

Cost CrossEntropyGradient::check() const {
  check_slice(statistics, logits, targets, slice);
  return {.flops = 10.0 * count(logits),
          .bytes = total_bytes(statistics, logits, logits, targets),
          .name = "cross_entropy_gradient"};
}

Cost MeanSquaredError::check() const {
  EBB_CHECK_TENSORS(is_float(x.dtype) && is_float(targets.dtype) && targets.rows() == x.rows() &&
                        targets.columns() == x.columns(),
                    "mean_squared_error: x and targets (N, C) of float types", x, targets);
  EBB_CHECK_TENSORS(is_vector(losses, DType::F32, x.rows()) && (!dx || same_matrix(dx, x)),
                    "mean_squared_error: losses (N) fp32, dx (N, C) of x's type", losses, dx, x);
  return vector_cost((dx ? 5.0 : 3.0) * count(x), total_bytes(losses, dx, x, targets),
                     "mean_squared_error");
}

Cost Sum::check() const {
  EBB_CHECK_TENSORS(is_vector(total, DType::F64, 1) && values.dtype == DType::F32,
                    "sum: total (1) fp64, values (N) fp32", total, values);
  return {.flops = count(values), .bytes = total_bytes(total, values), .name = "sum"};
}

}  // namespace ebb
