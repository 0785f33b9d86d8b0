// Eigen's matrix product on one thread, as a comparison. REQUIRES: the machine has AVX-512.
#pragma once

#include <cstdint>

namespace ebb {

/// c (m, n) = a b, row-major. At most one of a and b may be transposed in memory.
void eigen_product(float* c, const float* a, bool transpose_a, const float* b, bool transpose_b,
                   int64_t m, int64_t n, int64_t k);

}  // namespace ebb
