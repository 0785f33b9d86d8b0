#include "tests/cpu_adam/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace ebb::test {

Guarded::Guarded(int64_t n, size_t element_bytes)
    : element_(element_bytes),
      bytes_(static_cast<size_t>(n) * element_bytes + element_bytes + 2 * kCanaries, kCanary) {
  std::fill(bytes_.begin() + static_cast<ptrdiff_t>(kCanaries + element_),
            bytes_.end() - static_cast<ptrdiff_t>(kCanaries), std::byte{0});
}

std::vector<std::byte> Guarded::content() const {
  return {bytes_.begin() + static_cast<ptrdiff_t>(kCanaries + element_),
          bytes_.end() - static_cast<ptrdiff_t>(kCanaries)};
}

bool Guarded::intact() const {
  const auto is_canary = [](std::byte b) { return b == kCanary; };
  return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(kCanaries + element_),
                     is_canary) &&
         std::all_of(bytes_.end() - static_cast<ptrdiff_t>(kCanaries), bytes_.end(), is_canary);
}

std::string name_of_types(Types types) {
  return fmt::format("{}_gradient_{}", name_of(types.weight), name_of(types.gradient));
}

State::State(int64_t n, Types types)
    : n_(n),
      types_(types),
      weight_(n, size_of(types.weight)),
      low_(types.weight == DType::BF16 ? n : 0, sizeof(int16_t)),
      master_(types.weight == DType::F16 ? n : 0, sizeof(float)),
      momentum_(n, sizeof(float)),
      variance_(n, sizeof(float)),
      gradient_(n, size_of(types.gradient)) {}

Planes State::planes() {
  const bool split = types_.weight == DType::BF16, whole = types_.weight == DType::F16;
  return {.weight = weight_.data(),
          .low = split ? reinterpret_cast<int16_t*>(low_.data()) : nullptr,
          .master = whole ? reinterpret_cast<float*>(master_.data()) : nullptr,
          .momentum = reinterpret_cast<float*>(momentum_.data()),
          .variance = reinterpret_cast<float*>(variance_.data()),
          .gradient = gradient_.data(),
          .weight_dtype = types_.weight,
          .gradient_dtype = types_.gradient};
}

std::vector<float> State::masters() {
  std::vector<float> result(static_cast<size_t>(n_));
  read_masters(planes(), result);
  return result;
}

void State::set_weights(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(static_cast<size_t>(n_));
  for (float& value : values) value = normal(random);
  write_masters(planes(), values);
}

void State::set_gradients(uint64_t seed) {
  const std::vector<float> values = make_gradients(n_, seed);
  for (int64_t i = 0; i < n_; ++i) set_gradient(i, values[static_cast<size_t>(i)]);
}

void State::set_gradient(int64_t i, float value) {
  std::byte* const gradient = gradient_.data();
  if (types_.gradient == DType::F32) reinterpret_cast<float*>(gradient)[i] = value;
  if (types_.gradient == DType::BF16) reinterpret_cast<BF16*>(gradient)[i] = BF16(value);
  if (types_.gradient == DType::F16) reinterpret_cast<F16*>(gradient)[i] = F16(value);
}

std::vector<std::byte> State::bits() const {
  std::vector<std::byte> result;
  for (const Guarded* plane : {&weight_, &low_, &master_, &momentum_, &variance_}) {
    const std::vector<std::byte> content = plane->content();
    result.insert(result.end(), content.begin(), content.end());
  }
  return result;
}

bool State::intact() const {
  return weight_.intact() && low_.intact() && master_.intact() && momentum_.intact() &&
         variance_.intact() && gradient_.intact();
}

std::vector<float> State::floats(const Guarded& plane) const {
  const std::vector<std::byte> content = plane.content();
  std::vector<float> result(static_cast<size_t>(n_));
  if (n_ > 0) std::memcpy(result.data(), content.data(), content.size());
  return result;
}

std::vector<float> make_gradients(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> decade(-4.0f, 0.0f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    const float magnitude = std::pow(10.0f, decade(random));
    value = BF16(random() & 1 ? magnitude : -magnitude);
  }
  return values;
}

}  // namespace ebb::test
