// Eigen's product is compiled for AVX-512 in this separate file, so that other code runs on any
// machine.
#include "bench/bench_gemm_eigen.h"

#include <Eigen/Core>

namespace ebb {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void eigen_product(float* c, const float* a, bool transpose_a, const float* b, bool transpose_b,
                   int64_t m, int64_t n, int64_t k) {
  Eigen::Map<Matrix> to(c, m, n);
  const Eigen::Map<const Matrix> a_map(a, transpose_a ? k : m, transpose_a ? m : k);
  const Eigen::Map<const Matrix> b_map(b, transpose_b ? n : k, transpose_b ? k : n);
  if (transpose_a) {
    to.noalias() = a_map.transpose() * b_map;
  } else if (transpose_b) {
    to.noalias() = a_map * b_map.transpose();
  } else {
    to.noalias() = a_map * b_map;
  }
}

}  // namespace ebb
