#include "tests/cuda_emulation/sums_of_products.h"

#include <bit>
#include <cstring>

namespace ebb::emulation {
namespace {

TileFactors factors_of(const Brought& brought) {
  TileFactors factors;
  std::memcpy(&factors, brought.bytes, sizeof(factors));
  return factors;
}

void put(float* to, uint32_t pair) {
  to[0] = std::bit_cast<float>(pair << 16);
  to[1] = std::bit_cast<float>(pair & 0xffff0000u);
}

}  // namespace

void add_products(Columns& sums, std::span<const double> factors,
                  std::span<const Columns> columns) {
  constexpr size_t kCount = std::tuple_size_v<Columns>;
  double all[kCount];
  std::memcpy(all, &sums, sizeof(all));
  const auto* column = reinterpret_cast<const double*>(columns.data());
  for (const double factor : factors) {
    for (size_t c = 0; c < kCount; ++c) all[c] += factor * column[c];
    column += kCount;
  }
  std::memcpy(&sums, all, sizeof(all));
}

void add_tile(float (&c)[4], const Brought* brought, int lane) {
  float left[2][16], right[2][16];
  const int g = lane / 4, i = lane % 4 * 2;
  for (int q = 0; q < 4; ++q) {
    const TileFactors row = factors_of(brought[g * 4 + q]);
    put(left[0] + 2 * q, row.a[0]), put(left[0] + 2 * q + 8, row.a[2]);
    put(left[1] + 2 * q, row.a[1]), put(left[1] + 2 * q + 8, row.a[3]);
    for (int column = 0; column < 2; ++column) {
      const TileFactors factors = factors_of(brought[(i + column) * 4 + q]);
      put(right[column] + 2 * q, factors.b[0]), put(right[column] + 2 * q + 8, factors.b[1]);
    }
  }
  float sums[4] = {c[0], c[1], c[2], c[3]};
  for (int k = 0; k < 16; ++k) {
    for (int part = 0; part < 4; ++part) sums[part] += left[part / 2][k] * right[part % 2][k];
  }
  std::memcpy(c, sums, sizeof(sums));
}

}  // namespace ebb::emulation
