#include "device/kernels/softmax.h"

#include "device/kernels/checks.h"

namespace ebb {

Cost SoftmaxForward::check() const {
  EBB_CHECK_TENSORS(is_float(x.dtype) && same_matrix(y, x),
                    "softmax_forward: y and x (N, C) of one float type", y, x);
  return vector_cost(10.0 * count(x), total_bytes(y, x), "softmax_forward");
}

Cost SoftmaxBackward::check() const {
  EBB_CHECK_TENSORS(is_float(y.dtype) && same_matrix(dx, y) && same_matrix(dy, y),
                    "softmax_backward: dx, dy and y (N, C) of one float type", dx, dy, y);
  return vector_cost(5.0 * count(y), total_bytes(dx, dy, y), "softmax_backward");
}

}  // namespace ebb
