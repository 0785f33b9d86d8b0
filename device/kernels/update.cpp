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
  EBB_CHECK_TENSORS(is_float(gradient.dtype) && is_vector(sums, DType::F32, n) &&
                        (!more_sums || is_vector(more_sums, DType::F32, n)),
                    "round_gradient: gradient (n) of a float type, sums (n) fp32", gradient, sums,
                    more_sums);
  EBB_CHECK_TENSORS(!partials || has_all_pieces(partials, n),
                    "round_gradient: one fp64 partial for each piece of the gradient, or none",
                    partials, gradient);
  return {.flops = partials ? 2.0 * static_cast<double>(n) : 0.0,
          .bytes = total_bytes(gradient, sums, more_sums, partials),
          .name = "round_gradient"};
}

Cost SquaredNormPieces::check() const {
  EBB_CHECK_TENSORS(is_float(gradient.dtype) && has_all_pieces(partials, gradient.num_elements()),
                    "squared_norm_pieces: one fp64 partial for each piece of the gradient",
                    partials, gradient);
  return {.flops = 2.0 * count(gradient),
          .bytes = total_bytes(partials, gradient),
          .name = "squared_norm_pieces"};
}

Cost AdamWUpdate::check() const {
  check_planes(planes, all_planes(planes.weight_dtype));
  EBB_CHECK(is_float(planes.gradient_dtype) && planes.gradient,
            "adamw: gradient fp32, bf16 or fp16");
  double elements = 0;
  for (const UpdateRange& range : ranges) {
    EBB_CHECK(range.count >= 0 && range.which < coefficients.size(),
              "adamw: a range with coefficients");
    elements += static_cast<double>(range.count);
  }
  return {
      .flops = 14 * elements,
      .bytes = update_bytes_per_parameter(planes.weight_dtype, planes.gradient_dtype) * elements,
      .name = "adamw"};
}

}  // namespace ebb
