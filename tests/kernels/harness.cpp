#include "tests/kernels/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ebb::test {
namespace {

constexpr std::byte kCanary{0xA5};
constexpr std::byte kUnwritten{0xFF};  // NaN in every float type

bool arrays_are_misaligned = false;

uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

Guarded::Guarded(size_t bytes, size_t shift)
    : bytes_before_(kCanaryBytes + shift), memory_(bytes_before_ + bytes + kCanaryBytes) {
  std::fill(memory_.begin(), memory_.end(), kUnwritten);
  std::fill_n(memory_.begin(), bytes_before_, kCanary);
  std::fill_n(memory_.end() - kCanaryBytes, kCanaryBytes, kCanary);
}

Guarded::~Guarded() {
  EXPECT_TRUE(memory_.empty() || intact()) << "a kernel wrote outside its array";
}

bool Guarded::intact() const {
  const auto is_canary = [](std::byte b) { return b == kCanary; };
  return std::all_of(memory_.begin(), memory_.begin() + bytes_before_, is_canary) &&
         std::all_of(memory_.end() - kCanaryBytes, memory_.end(), is_canary);
}

MisalignedArrays::MisalignedArrays() { arrays_are_misaligned = true; }
MisalignedArrays::~MisalignedArrays() { arrays_are_misaligned = false; }

Array::Array(DType dtype, Shape shape)
    : memory_(static_cast<size_t>(shape.num_elements()) * size_of(dtype),
              arrays_are_misaligned ? size_of(dtype) : 0),
      tensor_{memory_.data(), dtype, shape} {}

Array::Array(DType dtype, Shape shape, const Values& values) : Array(dtype, shape) {
  EXPECT_EQ(static_cast<int64_t>(values.size()), shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::F32:
        tensor_.as<float>()[i] = static_cast<float>(values[i]);
        break;
      case DType::BF16:
        tensor_.as<BF16>()[i] = BF16(static_cast<float>(values[i]));
        break;
      case DType::F16:
        tensor_.as<F16>()[i] = F16(static_cast<float>(values[i]));
        break;
      case DType::F64:
        tensor_.as<double>()[i] = values[i];
        break;
      case DType::I32:
        tensor_.as<int32_t>()[i] = static_cast<int32_t>(values[i]);
        break;
      case DType::I16:
        tensor_.as<int16_t>()[i] = static_cast<int16_t>(values[i]);
        break;
    }
  }
}

Values Array::values() const {
  Values result(static_cast<size_t>(tensor_.num_elements()));
  for (size_t i = 0; i < result.size(); ++i) {
    switch (tensor_.dtype) {
      case DType::F32:
        result[i] = tensor_.as<float>()[i];
        break;
      case DType::BF16:
        result[i] = static_cast<float>(tensor_.as<BF16>()[i]);
        break;
      case DType::F16:
        result[i] = static_cast<float>(tensor_.as<F16>()[i]);
        break;
      case DType::F64:
        result[i] = tensor_.as<double>()[i];
        break;
      case DType::I32:
        result[i] = tensor_.as<int32_t>()[i];
        break;
      case DType::I16:
        result[i] = tensor_.as<int16_t>()[i];
        break;
    }
  }
  return result;
}

std::vector<std::byte> Array::raw() const { return {tensor_.data, tensor_.data + tensor_.bytes()}; }

Values random_values(int64_t n, uint64_t seed, double range) {
  Values result(static_cast<size_t>(n));
  uint64_t state = seed;
  for (double& v : result) {
    v = range * (2.0 * static_cast<double>(next_random(state) >> 11) * 0x1p-53 - 1.0);
  }
  return result;
}

Array random_array(DType dtype, Shape shape, uint64_t seed, double range) {
  return Array(dtype, shape, random_values(shape.num_elements(), seed, range));
}

Array int_array(const std::vector<int32_t>& values) {
  return Array(DType::I32, {static_cast<int64_t>(values.size())},
               Values(values.begin(), values.end()));
}

std::vector<int32_t> random_indices(int64_t n, int64_t limit, uint64_t seed) {
  std::vector<int32_t> result(static_cast<size_t>(n));
  uint64_t state = seed;
  for (int32_t& v : result) {
    v = static_cast<int32_t>(next_random(state) % static_cast<uint64_t>(limit));
  }
  return result;
}

double half_unit(double value, DType dtype) {
  if (dtype == DType::F64 || value == 0.0) return 0.0;
  if (dtype == DType::F16) return std::max(std::ldexp(1.0, std::ilogb(value) - 11), 0x1p-25);
  const int bits = dtype == DType::BF16 ? 8 : 24;
  return std::ldexp(1.0, std::ilogb(value) - bits);
}

testing::AssertionResult close(const Values& got, const Values& want, const Values& scale,
                               double relative, DType dtype, const Values& rounded_before) {
  if (got.size() != want.size() || got.size() != scale.size() ||
      (!rounded_before.empty() && got.size() != rounded_before.size())) {
    return testing::AssertionFailure() << "sizes differ";
  }
  for (size_t i = 0; i < got.size(); ++i) {
    double slack = relative * scale[i];
    if (!rounded_before.empty()) slack += half_unit(std::abs(rounded_before[i]) + slack, dtype);
    const double allowed = slack + half_unit(std::abs(want[i]) + slack, dtype);
    if (!(std::abs(got[i] - want[i]) <= allowed)) {
      return testing::AssertionFailure()
             << "element " << i << ": " << got[i] << ", expected " << want[i] << ", off by "
             << got[i] - want[i] << ", allowed " << allowed;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace ebb::test
