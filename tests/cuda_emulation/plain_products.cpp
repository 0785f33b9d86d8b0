// cuBLASLt's place in the emulation: each product as three loops, summed in fp64 and rounded once,
// or added to what is there and rounded once.
#include <algorithm>
#include <vector>

#include "cuda/linear.h"
#include "tests/cuda_emulation/os_threads.h"
#include "tests/cuda_emulation/stream_queue.h"

namespace ebb {
namespace {

double read(const void* data, DType dtype, int64_t i) {
  if (dtype == DType::F32) return static_cast<const float*>(data)[i];
  if (dtype == DType::F16) return static_cast<const F16*>(data)[i];
  return static_cast<const BF16*>(data)[i];
}

/// Columns [first, last) of d.
void multiply_columns(const MatrixProduct& p, int64_t first, int64_t last) {
  std::vector<double> sums(static_cast<size_t>(p.m));
  for (int64_t column = first; column < last; ++column) {
    for (int64_t row = 0; row < p.m; ++row) {
      sums[static_cast<size_t>(row)] = p.bias == nullptr ? 0.0 : read(p.bias, p.dtype, row);
    }
    for (int64_t k = 0; k < p.k; ++k) {
      const ColumnMajor &a = p.a, &b = p.b;
      const double right =
          read(b.data, p.dtype, b.transposed ? k * b.stride + column : column * b.stride + k);
      for (int64_t row = 0; row < p.m; ++row) {
        sums[static_cast<size_t>(row)] +=
            right * read(a.data, p.dtype, a.transposed ? row * a.stride + k : k * a.stride + row);
      }
    }
    for (int64_t row = 0; row < p.m; ++row) {
      const int64_t i = column * p.m + row;
      auto sum = static_cast<float>(sums[static_cast<size_t>(row)]);
      if (p.write == Write::Add) sum += static_cast<float>(read(p.d, p.d_dtype, i));
      if (p.d_dtype == DType::F32) {
        static_cast<float*>(p.d)[i] = sum;
      } else if (p.d_dtype == DType::BF16) {
        static_cast<BF16*>(p.d)[i] = BF16(sum);
      } else {
        static_cast<F16*>(p.d)[i] = F16(sum);
      }
    }
  }
}

class PlainProducts final : public MatrixProducts {
 public:
  void multiply(cudaStream_t stream, const MatrixProduct& product, std::byte*) override {
    emulation::enqueue(stream, [product] {
      constexpr int64_t kColumns = 16;
      emulation::deal((product.n + kColumns - 1) / kColumns, [&](int64_t i) {
        multiply_columns(product, i * kColumns, std::min(product.n, (i + 1) * kColumns));
      });
    });
  }
};

}  // namespace

std::unique_ptr<MatrixProducts> create_matrix_products() {
  return std::make_unique<PlainProducts>();
}

}  // namespace ebb
