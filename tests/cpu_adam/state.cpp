#include "tests/cpu_adam/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>

#include "device/adamw_planes.h"

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

NamedPlanes named(const Planes& planes) {
  return with_adamw_view(planes, []<class W, class G>(const AdamWView<W, G>& at) {
    NamedPlanes result{.weight = reinterpret_cast<std::byte*>(at.weight),
                       .momentum = at.momentum,
                       .variance = at.variance};
    if constexpr (std::is_same_v<W, F16>) {
      result.master = at.remainder;
    } else {
      result.low = at.remainder;
    }
    return result;
  });
}

State::State(int64_t n, Types types) : n_(n), types_(types), gradient_(n, size_of(types.gradient)) {
  for (const PlaneInfo& plane : state_planes(types.weight)) {
    planes_.emplace_back(n, plane.bytes_per_group);
  }
}

Planes State::planes() {
  Planes planes{.gradient = gradient_.data(),
                .weight_dtype = types_.weight,
                .gradient_dtype = types_.gradient};
  for (size_t i = 0; i < planes_.size(); ++i) planes[i] = planes_[i].data();
  return planes;
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
  for (const Guarded& plane : planes_) {
    const std::vector<std::byte> content = plane.content();
    result.insert(result.end(), content.begin(), content.end());
  }
  return result;
}

bool State::intact() const {
  return std::ranges::all_of(planes_, &Guarded::intact) && gradient_.intact();
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
