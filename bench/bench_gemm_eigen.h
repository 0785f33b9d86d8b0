// Eigen's matrix product on one thread, to compare with. REQUIRES: the machine has AVX-512.
#pragma once

#include <cstdint>

namespace ebb {

/// c (m, n) = a b, row-major; at most one of the two is given transposed.
void eigen_product(float* c, const float* a, bool transpose_a, const float* b, bool transpose_b,
                   int64_t m, int64_t n, int64_t k);

}  // namespace ebb
