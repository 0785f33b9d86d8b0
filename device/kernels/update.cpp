#include "device/kernels/update.h"

#include "device/kernels/checks.h"

namespace ebb {
namespace {

bool has_all_pieces(const Tensor& partials, int64_t num_elements) {
  return is_vector(partials, DType::F64, (num_elements + kPieceElements - 1) / kPieceElements);
}

}  // namespace

Cost RoundGradient::check() const {
  const int64_t n = gradient.num_elements();
  EBB_CHECK(is_float(gradient.dtype) && is_vector(sums, DType::F32, n) &&
                (!more_sums || is_vector(more_sums, DType::F32, n)),
            "round_gradient: gradient (n) of a float type, sums (n) fp32");
  EBB_CHECK(!partials || has_all_pieces(partials, n),
            "round_gradient: one fp64 partial for each piece of the gradient, or none");
  return {.flops = partials ? 2.0 * static_cast<double>(n) : 0.0,
          .bytes = total_bytes(gradient, sums, more_sums, partials),
          .name = "round_gradient"};
}

Cost SquaredNormPieces::check() const {
  EBB_CHECK(is_float(gradient.dtype) && has_all_pieces(partials, gradient.num_elements()),
            "squared_norm_pieces: one fp64 partial for each piece of the gradient");
  return {.flops = 2.0 * count(gradient),
          .bytes = total_bytes(partials, gradient),
          .name = "squared_norm_pieces"};
}

Cost AdamWUpdate::check() const {
  const int64_t n = weight.num_elements();
  const DType type = weight.dtype;
  EBB_CHECK(is_float(type), "adamw: weights fp32, bf16 or fp16");
  EBB_CHECK(is_vector(weight, weight.dtype, n) && is_vector(momentum, DType::F32, n) &&
                is_vector(variance, DType::F32, n) && is_vector(gradient, gradient.dtype, n) &&
                (low != nullptr) == (type == DType::BF16) &&
                (master != nullptr) == (type == DType::F16) && coefficients != nullptr,
            "adamw: weight, momentum, variance, gradient (n), low halves of bf16 weights, masters "
            "of fp16 weights");
  const double bytes =
      (type == DType::F16 ? 26 : 24) + static_cast<double>(size_of(gradient.dtype));
  return {.flops = 14 * static_cast<double>(n),
          .bytes = bytes * static_cast<double>(n),
          .name = "adamw"};
}

}  // namespace ebb
