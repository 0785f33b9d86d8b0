#include "scheduler/device_state.h"

#include <algorithm>

#include "device/errors.h"

namespace ebb {
namespace {

/// All planes but the weights.
size_t bytes_per_chunk(const Layout& layout) {
  size_t bits_per_element = 0;
  for (const PlaneInfo& plane : home_planes(layout.weight_type())) {
    if (!plane.is_weight) bits_per_element += plane.bits_per_element;
  }
  return layout.chunk_elements() * bits_per_element / 8;
}

}  // namespace

DeviceState::DeviceState(Device& device, const Layout& layout, std::vector<uint32_t> chunks)
    : layout_(layout), chunks_(std::move(chunks)) {
  if (chunks_.empty()) return;
  planes_ = device.allocate(MemoryKind::Device,
                            bytes(layout, static_cast<uint32_t>(chunks_.size())), "visiting state");
  coefficients_ = device.allocate(MemoryKind::Pinned, kCoefficientBytes, "coefficients");
}

size_t DeviceState::bytes(const Layout& layout, uint32_t num_chunks) {
  return num_chunks * bytes_per_chunk(layout);
}

bool DeviceState::has(uint32_t chunk) const { return std::ranges::binary_search(chunks_, chunk); }

Planes DeviceState::planes(uint32_t chunk) const {
  EBB_CHECK(has(chunk), "the device has no state of this chunk");
  const auto at = static_cast<size_t>(std::ranges::lower_bound(chunks_, chunk) - chunks_.begin());
  std::byte* const first = planes_.data() + at * bytes_per_chunk(layout_);
  const size_t plane_bytes = layout_.chunk_elements() * sizeof(float);
  Planes planes;
  planes.momentum = reinterpret_cast<float*>(first);
  planes.variance = reinterpret_cast<float*>(first + plane_bytes);
  std::byte* const third = first + 2 * plane_bytes;
  if (layout_.weight_type() == DType::BF16) planes.low = reinterpret_cast<int16_t*>(third);
  if (layout_.weight_type() == DType::F16) planes.master = reinterpret_cast<float*>(third);
  planes.weight_dtype = layout_.weight_type();
  planes.gradient_dtype = layout_.gradient_type();
  return planes;
}

template <class Copy>
void DeviceState::for_each_plane(uint32_t chunk, const Planes& home, const Copy& copy) const {
  const Planes here = planes(chunk);
  const size_t count = layout_.chunk_elements(chunk);
  copy(here.momentum, home.momentum, count * sizeof(float));
  copy(here.variance, home.variance, count * sizeof(float));
  if (here.low != nullptr) copy(here.low, home.low, count * sizeof(int16_t));
  if (here.master != nullptr) copy(here.master, home.master, count * sizeof(float));
}

void DeviceState::load(Stream& load, uint32_t chunk, const Planes& home) const {
  for_each_plane(chunk, home, [&](void* here, const void* there, size_t bytes) {
    load.copy(here, there, bytes, CopyKind::Load);
  });
}

void DeviceState::store(Stream& store, uint32_t chunk, const Planes& home) const {
  for_each_plane(chunk, home, [&](const void* here, void* there, size_t bytes) {
    store.copy(there, here, bytes, CopyKind::Store);
  });
}

size_t DeviceState::find(const AdamWRun& run) const {
  const auto same = [&](const Factors& f) {
    return f.decay_factor == run.decay_factor && f.learning_rate_factor == run.learning_rate_factor;
  };
  return static_cast<size_t>(std::ranges::find_if(factors_, same) - factors_.begin());
}

void DeviceState::expect(const AdamWRun& run) {
  if (chunks_.empty() || find(run) < factors_.size()) return;
  EBB_CHECK(factors_.size() < kMaxFactors, "too many rates of learning and decay");
  factors_.push_back({run.decay_factor, run.learning_rate_factor});
}

std::span<AdamWCoefficients> DeviceState::coefficients(bool after_norm) const {
  if (chunks_.empty()) return {};
  auto* const first = reinterpret_cast<AdamWCoefficients*>(coefficients_.data());
  return {first + (after_norm ? kMaxFactors : 0), factors_.size()};
}

void DeviceState::decide(const AdamWStep& step, bool after_norm) {
  const std::span<AdamWCoefficients> decided = coefficients(after_norm);
  for (size_t i = 0; i < decided.size(); ++i) {
    decided[i] =
        adamw_coefficients(step, factors_[i].decay_factor, factors_[i].learning_rate_factor);
  }
}

void DeviceState::skip() {
  for (AdamWCoefficients& c : coefficients(true)) c.skip = 1;
}

void DeviceState::submit_update(Stream& compute, Kernels& kernels, const Planes& planes,
                                const AdamWRun& run, bool after_norm) const {
  const Planes at = planes.from(run.first);
  const auto plane = [&](void* data, DType type) {
    return Tensor{static_cast<std::byte*>(data), type, {run.count}};
  };
  kernels.adamw(compute,
                {.weight = plane(at.weight, at.weight_dtype),
                 .low = at.low,
                 .master = at.master,
                 .momentum = plane(at.momentum, DType::F32),
                 .variance = plane(at.variance, DType::F32),
                 .gradient = plane(const_cast<std::byte*>(at.gradient), at.gradient_dtype)},
                &coefficients(after_norm)[find(run)]);
}

}  // namespace ebb
