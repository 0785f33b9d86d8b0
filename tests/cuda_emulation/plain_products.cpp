// Replaces cuBLASLt: each product is three loops, summed in fp64, added to the old value for
// Write::Add, and rounded once.
#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "cuda/linear.h"
#include "device/errors.h"
#include "tests/cuda_emulation/code_loading.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/os_threads.h"
#include "tests/cuda_emulation/stream_queue.h"
#include "tests/cuda_emulation/sums_of_products.h"

namespace ebb {
namespace {

double read(const void* data, DType dtype, int64_t i) {
  return with_float_type(dtype, [&](auto zero) -> double {
    return float{static_cast<const decltype(zero)*>(data)[i]};
  });
}

void write(void* data, DType dtype, int64_t i, float value) {
  with_float_type(
      dtype, [&](auto zero) { static_cast<decltype(zero)*>(data)[i] = decltype(zero)(value); });
}

double gelu_gate(double x) {
  return 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double gate = gelu_gate(x);
  return gate + 2 * x * gate * (1 - gate) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/// Applies the epilogue to the sum of element i, and returns the value for d.
double finished(const MatrixProduct& p, double sum, int64_t i) {
  switch (p.epilogue) {
    case Epilogue::GeluSlope:
      return sum * gelu_slope(read(p.before, p.d_dtype, i));
    case Epilogue::None:
      break;
  }
  return sum;
}

constexpr int64_t kColumns = std::tuple_size_v<emulation::Columns>;

/// Computes columns [first, last) of d, which are at most kColumns. T: the type of the factors.
template <class T>
void multiply_columns(const MatrixProduct& p, int64_t first, int64_t last) {
  const auto at = [](const ColumnMajor& x, int64_t row, int64_t column) -> double {
    const int64_t i = x.transposed ? row * x.stride + column : column * x.stride + row;
    return float{static_cast<const T*>(x.data)[i]};
  };
  const auto depth = static_cast<size_t>(p.k);
  std::vector<emulation::Columns> columns(depth);
  for (int64_t k = 0; k < p.k; ++k) {
    double* values = columns[static_cast<size_t>(k)].data();
    for (int64_t column = first; column < last; ++column) *values++ = at(p.b, k, column);
  }
  std::vector<double> factors(depth);
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t k = 0; k < p.k; ++k) factors[static_cast<size_t>(k)] = at(p.a, row, k);
    emulation::Columns sums;
    sums.fill(p.bias == nullptr ? 0.0 : read(p.bias, p.dtype, row));
    emulation::add_products(sums, factors, columns);
    for (int64_t column = first; column < last; ++column) {
      const double sum = sums[static_cast<size_t>(column - first)];
      const int64_t i = column * p.d_stride + row;
      auto value = static_cast<float>(finished(p, sum, column * p.m + row));
      if (p.write == Write::Add) value += static_cast<float>(read(p.added(), p.d_dtype, i));
      write(p.d, p.d_dtype, i, value);
    }
  }
  if (p.b_sums == nullptr) return;
  std::ranges::fill(factors, 1.0);
  emulation::Columns sums = {};
  emulation::add_products(sums, factors, columns);
  for (int64_t column = first; column < last; ++column) {
    p.b_sums[column] = static_cast<float>(sums[static_cast<size_t>(column - first)]);
  }
}

bool is_alone(const MatrixProduct& p) {
  return p.epilogue == Epilogue::None && p.b_sums == nullptr && p.old == nullptr;
}

/// Checks the requirements of cuBLASLt for the matrix `before`, and those of MatrixProduct for
/// epilogues.
bool is_sound(const MatrixProduct& p) {
  const bool before_fits =
      p.before != nullptr && p.m % 8 == 0 && reinterpret_cast<uintptr_t>(p.before) % 16 == 0;
  if (p.old != nullptr) {
    return p.write == Write::Add && p.epilogue == Epilogue::None && p.b_sums == nullptr;
  }
  return is_alone(p) ||
         (p.dtype != DType::F32 &&
          (p.epilogue == Epilogue::None || (p.write == Write::Store && before_fits)) &&
          (p.b_sums == nullptr || (p.bias == nullptr && p.d_dtype == DType::F32)));
}

/// The properties on which an algorithm depends, except types and alignments.
auto shape_of(const MatrixProduct& p) {
  return std::tuple(p.m, p.n, p.k, p.a.transposed, p.b.transposed, p.write, p.epilogue,
                    p.bias == nullptr, p.b_sums == nullptr, p.old == nullptr);
}

class PlainProducts final : public MatrixProducts {
 public:
  bool can_multiply(const MatrixProduct& p) override {
    const emulation::Settings& settings = emulation::settings();
    if (p.epilogue != Epilogue::None && !gelu_is_faster_with_products(settings.architecture)) {
      return false;
    }
    return settings.has_epilogues || is_alone(p);
  }
  void multiply(cudaStream_t stream, const MatrixProduct& product, std::byte*) override {
    EBB_CHECK(is_sound(product), "cuBLASLt would refuse this product");
    if (shapes_.insert(shape_of(product)).second) emulation::load_code();
    emulation::enqueue(stream, [product] {
      emulation::deal((product.n + kColumns - 1) / kColumns, [&](int64_t i) {
        with_float_type(product.dtype, [&](auto zero) {
          multiply_columns<decltype(zero)>(product, i * kColumns,
                                           std::min(product.n, (i + 1) * kColumns));
        });
      });
    });
  }

 private:
  std::set<decltype(shape_of({}))> shapes_;  // shapes whose kernels are loaded
};

}  // namespace

std::unique_ptr<MatrixProducts> create_matrix_products() {
  return std::make_unique<PlainProducts>();
}

}  // namespace ebb
