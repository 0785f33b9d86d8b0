#include "scheduler/run/device_state.h"

#include <algorithm>

#include "device/errors.h"
#include "device/kernels.h"
#include "device/planes.h"
#include "scheduler/search/memory_sizes.h"

namespace ebb {
namespace {

/// The bytes of all planes but the weight.
size_t state_bytes(const Layout& layout, uint64_t num_elements) {
  const DType type = layout.weight_type();
  return num_elements * (state_bytes_per_element(type) - size_of(type));
}

/// Calls copy(address on the device, address in the bounce buffer, bytes) for each plane that is
/// not null in the bounce buffer's planes `there`.
template <class Copy>
void for_each_plane(const Planes& here, const Planes& there, uint64_t count, const Copy& copy) {
  if (there.weight != nullptr) copy(here.weight, there.weight, count * size_of(here.weight_dtype));
  if (there.momentum != nullptr) copy(here.momentum, there.momentum, count * sizeof(float));
  if (there.variance != nullptr) copy(here.variance, there.variance, count * sizeof(float));
  if (there.low != nullptr) copy(here.low, there.low, count * sizeof(int16_t));
  if (there.master != nullptr) copy(here.master, there.master, count * sizeof(float));
}

}  // namespace

DeviceState::DeviceState(Device& device, const Layout& layout, std::span<const ChunkRecord> chunks,
                         std::byte* weights)
    : layout_(layout), index_(chunks.size(), kNone), weights_(weights) {
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    if (chunks[c].is_on_device()) index_[c] = num_chunks_++;
  }
  if (is_empty()) return;
  planes_ = device.allocate(MemoryKind::Device, device_state_bytes(layout, num_chunks_),
                            "state on the device");
  coefficients_ = device.allocate(MemoryKind::Pinned, kCoefficientBytes, "coefficients");
  bounce_buffer_ =
      device.allocate(MemoryKind::Pinned, bounce_buffer_bytes(layout), "bounce buffer");
  copies_ = device.create_stream(StreamKind::Store);
}

Planes DeviceState::planes_in(std::byte* memory, uint64_t num_elements) const {
  Planes planes;
  planes.momentum = reinterpret_cast<float*>(memory);
  planes.variance = planes.momentum + num_elements;
  float* const third = planes.variance + num_elements;
  if (layout_.weight_type() == DType::BF16) planes.low = reinterpret_cast<int16_t*>(third);
  if (layout_.weight_type() == DType::F16) planes.master = third;
  planes.weight_dtype = layout_.weight_type();
  planes.gradient_dtype = layout_.gradient_type();
  return planes;
}

Planes DeviceState::planes(uint32_t chunk) const {
  EBB_CHECK(has(chunk), "the device has no state of this chunk");
  const uint64_t num_elements = layout_.chunk_elements();
  const size_t offset = index_[chunk] * state_bytes(layout_, num_elements);
  Planes planes = planes_in(planes_.data() + offset, num_elements);
  planes.weight = weights_ + chunk * layout_.chunk_bytes();
  return planes;
}

void DeviceState::visit_copies(uint32_t chunk, uint64_t first, uint64_t count, StatePlanes asked,
                               bool changed, const VisitCopies& visit) const {
  std::lock_guard lock(bounce_mutex_);
  const uint64_t at_once = bounce_buffer_elements(layout_);
  Planes bounced = planes_in(bounce_buffer_.data(), at_once);
  if (asked.weight) bounced.weight = bounce_buffer_.data() + state_bytes(layout_, at_once);
  if (!asked.momentum) bounced.momentum = nullptr;
  if (!asked.variance) bounced.variance = nullptr;
  if (!asked.remainder) {
    bounced.low = nullptr;
    bounced.master = nullptr;
  }
  for (const uint64_t end = first + count; first < end; first += at_once) {
    const uint64_t num = std::min(at_once, end - first);
    const Planes here = planes(chunk).from(static_cast<int64_t>(first));
    for_each_plane(here, bounced, num, [&](const void* from, void* to, size_t bytes) {
      copies_->copy(to, from, bytes, CopyKind::Store);
    });
    copies_->synchronize();
    visit(first, num, bounced);
    if (!changed) continue;
    for_each_plane(here, bounced, num, [&](void* to, const void* from, size_t bytes) {
      copies_->copy(to, from, bytes, CopyKind::Load);
    });
    copies_->synchronize();
  }
}

size_t DeviceState::find(const AdamWRange& run) const {
  const auto same = [&](const Factors& f) {
    return f.decay_factor == run.decay_factor && f.learning_rate_factor == run.learning_rate_factor;
  };
  return static_cast<size_t>(std::ranges::find_if(factors_, same) - factors_.begin());
}

void DeviceState::expect(const AdamWRange& run) {
  if (is_empty() || find(run) < factors_.size()) return;
  EBB_CHECK(factors_.size() < kMaxFactors, "too many different factors of learning rate and decay");
  factors_.push_back({run.decay_factor, run.learning_rate_factor});
}

std::span<AdamWCoefficients> DeviceState::coefficients(bool after_norm) const {
  if (is_empty()) return {};
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
                                const AdamWRange& run, bool after_norm) const {
  const Planes at = planes.from(run.first);
  const auto plane = [&](void* data, DType type) {
    return Tensor{static_cast<std::byte*>(data), type, {run.count}};
  };
  kernels.submit(compute, AdamWUpdate{.weight = plane(at.weight, at.weight_dtype),
                                      .low = at.low,
                                      .master = at.master,
                                      .momentum = plane(at.momentum, DType::F32),
                                      .variance = plane(at.variance, DType::F32),
                                      .gradient = plane(const_cast<std::byte*>(at.gradient),
                                                        at.gradient_dtype),
                                      .coefficients = &coefficients(after_norm)[find(run)]});
}

}  // namespace ebb
