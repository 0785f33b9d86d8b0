// The innermost loops of the emulation. Their operands are copies that the emulation made with code
// that the sanitizers check, so these loops are compiled without sanitizers, and optimised.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tests/cuda_emulation/grid.h"

namespace ebb::emulation {

/// One value for each of a few columns.
using Columns = std::array<double, 16>;

/// sums[c] += factors[i] * columns[i][c] for each i in turn.
/// REQUIRES: factors and columns have the same size.
void add_products(Columns& sums, std::span<const double> factors, std::span<const Columns> columns);

/// What a lane brings to the product of two tiles: pairs of bf16.
struct TileFactors {
  uint32_t a[4], b[2];
};

/// The lane's part of multiply_add_tile(). `brought`: the TileFactors of all lanes.
/// Products of two bf16 are exact in fp32; they are added in the order of k, rounded each time.
void add_tile(float (&c)[4], const Brought* brought, int lane);

}  // namespace ebb::emulation
