#include "scheduler/run/device_state.h"

#include <algorithm>
#include <array>
#include <utility>

#include "device/errors.h"
#include "device/kernels.h"
#include "scheduler/search/memory_sizes.h"

namespace ebb {
namespace {

/// Calls copy(address on the device, address in the bounce buffer, bytes) for each plane that is in
/// the bounce buffer.
template <class Copy>
void for_each_plane(const Planes& here, const Planes& bounced, uint64_t count, const Copy& copy) {
  const std::span<const PlaneInfo> infos = state_planes(here.weight_dtype);
  for (size_t i = 0; i < infos.size(); ++i) {
    if (bounced[i] != nullptr) copy(here[i], bounced[i], infos[i].bytes(count));
  }
}

}  // namespace

DeviceState::DeviceState(Device& device, const Layout& layout, std::span<const ChunkRecord> chunks,
                         std::byte* weights, Ranks* ranks)
    : layout_(layout), memory_of_(chunks.size(), nullptr), weights_(weights) {
  std::vector<uint32_t> num_of(ranks != nullptr ? ranks->size() : 1, 0);  // [rank]
  bool on_owner = false;
  for (const ChunkRecord& chunk : chunks) {
    if (chunk.tier == Tier::Host) continue;
    ++num_of[chunk.is_on_owner() ? chunk.owner : 0];
    on_owner = chunk.is_on_owner();
    is_empty_ = false;
  }
  if (is_empty_) return;
  constexpr const char* kName = "state on the device";
  const DType type = layout.weight_type();
  stored_ = on_owner ? all_planes(type) : uncopied_planes(type);
  if (on_owner) {
    const uint32_t rank = ranks != nullptr ? ranks->rank() : 0;
    owned_bytes_ = owner_state_bytes(layout, num_of[rank]);
    shared_.emplace(device, kName, owned_bytes_, ranks);
  } else {
    planes_ = device.allocate(MemoryKind::Device, device_state_bytes(layout, num_of[0]), kName);
  }
  std::ranges::fill(num_of, 0);
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    if (chunks[c].tier == Tier::Host) continue;
    const uint32_t owner = on_owner ? chunks[c].owner : 0, index = num_of[owner]++;
    memory_of_[c] =
        on_owner ? const_cast<std::byte*>(shared_->of(owner)) + owner_state_bytes(layout, index)
                 : planes_.data() + device_state_bytes(layout, index);
  }
  coefficients_ = device.allocate(MemoryKind::Pinned, kCoefficientBytes, "coefficients");
  bounce_buffer_ =
      device.allocate(MemoryKind::Pinned, bounce_buffer_bytes(layout), "bounce buffer");
  fetched_ = device.create_event();
  copies_ = device.create_stream(StreamKind::Store);
}

/// These planes, one after the other in memory; the others are null.
Planes DeviceState::planes_in(std::byte* memory, uint64_t num_elements, PlaneSet which) const {
  const std::span<const PlaneInfo> infos = state_planes(layout_.weight_type());
  Planes planes{.weight_dtype = layout_.weight_type(), .gradient_dtype = layout_.gradient_type()};
  for (size_t i = 0; i < infos.size(); ++i) {
    if (which[i]) planes[i] = std::exchange(memory, memory + infos[i].bytes(num_elements));
  }
  return planes;
}

Planes DeviceState::planes(ChunkIndex chunk) const {
  EBB_CHECK(has(chunk), "the device has no state of this chunk");
  Planes planes = planes_in(memory_of_[chunk], layout_.chunk_elements(), stored_);
  if (!stored_[kWeightPlane]) planes[kWeightPlane] = weights_ + chunk * layout_.chunk_bytes();
  return planes;
}

/// Behind the planes.
std::byte* DeviceState::gradient(ChunkIndex chunk) const {
  const std::span<std::byte> mine = owned();
  EBB_CHECK(memory_of_[chunk] >= mine.data() && memory_of_[chunk] < mine.data() + mine.size(),
            "the device has no gradient of this chunk");
  return memory_of_[chunk] + state_bytes(layout_.weight_type(), layout_.chunk_elements());
}

std::span<std::byte> DeviceState::owned() const {
  return shared_ ? std::span(shared_->mine(), owned_bytes_) : std::span<std::byte>();
}

void DeviceState::visit_copies(ChunkIndex chunk, uint64_t first, uint64_t count, PlaneSet asked,
                               bool changed, const VisitCopies& visit) const {
  std::lock_guard lock(bounce_mutex_);
  const size_t half = bounce_buffer_.bytes() / 2;
  uint64_t at_once = bounce_buffer_elements(layout_);
  if (plane_bytes(layout_.weight_type(), asked, at_once) > half) at_once /= 2;
  const std::array bounced = {planes_in(bounce_buffer_.data(), at_once, asked),
                              planes_in(bounce_buffer_.data() + half, at_once, asked)};
  const uint64_t end = first + count;
  const auto copy = [&](uint64_t part, const Planes& bounce, CopyKind kind) {
    const Planes here = planes(chunk).from(static_cast<int64_t>(part));
    for_each_plane(here, bounce, std::min(at_once, end - part),
                   [&](std::byte* there, std::byte* on_host, size_t bytes) {
                     const bool loads = kind == CopyKind::Load;
                     copies_->copy(loads ? there : on_host, loads ? on_host : there, bytes, kind);
                   });
  };
  const auto fetch = [&](uint64_t part, const Planes& bounce) {
    copy(part, bounce, CopyKind::Store);
    copies_->record(*fetched_);
  };
  try {
    size_t turn = 0;
    if (first < end) fetch(first, bounced[turn]);
    for (; first < end; first += at_once, turn = 1 - turn) {
      fetched_->synchronize();
      // The stream copies in order: this fetch comes after the last part is back on the device.
      if (end - first > at_once) fetch(first + at_once, bounced[1 - turn]);
      visit(first, std::min(at_once, end - first), bounced[turn]);
      if (changed) copy(first, bounced[turn], CopyKind::Load);
    }
  } catch (...) {
    try {
      copies_->synchronize();
    } catch (...) {  // the first error is thrown
    }
    throw;
  }
  copies_->synchronize();
}

uint32_t DeviceState::index_of(const AdamWRange& range) {
  const auto same = [&](const Factors& f) {
    return f.decay_factor == range.decay_factor &&
           f.learning_rate_factor == range.learning_rate_factor;
  };
  const auto found = std::ranges::find_if(factors_, same);
  const auto index = static_cast<uint32_t>(found - factors_.begin());
  if (found != factors_.end()) return index;
  EBB_CHECK(factors_.size() < kMaxFactors, "too many different factors of learning rate and decay");
  factors_.push_back({range.decay_factor, range.learning_rate_factor});
  return index;
}

void DeviceState::expect(std::span<const AdamWRange> ranges) {
  if (is_empty()) return;
  for (const AdamWRange& range : ranges) {
    ranges_.push_back({range.first, range.count, index_of(range)});
  }
  first_range_.push_back(ranges_.size());
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

void DeviceState::submit_update(Stream& stream, Kernels& kernels, ChunkIndex chunk,
                                const std::byte* gradient, bool after_norm,
                                AdamWCoefficients* fetched) const {
  Planes changed = planes(chunk);
  changed.gradient = gradient;
  const size_t first = first_range_[chunk];
  kernels.submit(
      stream,
      AdamWUpdate{changed, std::span(ranges_).subspan(first, first_range_[chunk + 1] - first),
                  coefficients(after_norm), fetched});
}

}  // namespace ebb
