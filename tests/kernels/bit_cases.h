// The results of each kernel for fixed arguments, as bytes. Tests use them to check that a kernel
// always gives the same bits.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tests/kernels/harness.h"

namespace ebb::test {

using Bits = std::vector<std::byte>;

struct BitCase {
  std::string name;
  Bits (*run)(Harness& h, DType dtype);
};

std::span<const BitCase> bit_cases();
Bits linear_bits(Harness& h, DType dtype);
/// Only the gradient of the bias, for a number of output channels that is a multiple of 8.
Bits bias_gradient_bits(Harness& h, DType dtype);

}  // namespace ebb::test
