#include "scheduler/run/device_adder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/kernels.h"
#include "scheduler/search/memory_sizes.h"
#include "system/copy.h"

namespace ebb {
namespace {

Tensor tensor(const void* data, DType type, uint64_t count) {
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return {bytes, type, {static_cast<int64_t>(count)}};
}

/// The part of a segment that is in the range; no elements if there is none.
Segment part_in(const Segment& segment, ElementRange range) {
  const uint64_t begin = std::max(segment.first_element, range.first);
  const uint64_t end =
      std::min(segment.first_element + segment.num_elements, range.first + range.count);
  return {segment.parameter, begin, end > begin ? end - begin : 0};
}

void copy_by_all(ThreadTeam& team, std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kAtOnce = size_t{1} << 20;
  team.for_each(static_cast<int64_t>((bytes + kAtOnce - 1) / kAtOnce), [&](int64_t i) {
    const size_t first = static_cast<size_t>(i) * kAtOnce;
    copy_bytes(to + first, from + first, std::min(kAtOnce, bytes - first));
  });
}

}  // namespace

DeviceAdder::DeviceAdder(Device& device, const Layout& layout, const StoredSums& sums,
                         std::vector<bool> trained, Buffer pinned)
    : device_(device),
      layout_(layout),
      sums_(sums),
      trained_(std::move(trained)),
      memory_(device.allocate(MemoryKind::Device,
                              device_adder_bytes(layout, device.info().profile.kind),
                              kSumsOfGroups)),
      pinned_(std::move(pinned)),
      is_home_pinned_(device.staged_bytes() == 0),
      stream_(device.create_stream(StreamKind::Store)) {
  const uint64_t count = elements_added_at_once(layout);
  sum_ = reinterpret_cast<float*>(memory_.data());
  sum_of_use_ = sum_ + count;
  partials_ = reinterpret_cast<double*>(sum_of_use_ + count);
  coefficients_ = reinterpret_cast<AdamWCoefficients*>(partials_ + pieces_of(count));
  gradient_ = reinterpret_cast<std::byte*>(coefficients_) + kUpdateWorkspaceBytes;
}

/// Adds the sums of all groups of one use, of this machine. `sum` gets the first of them, unless it
/// has the sum of those before. The part is in one slot in each group.
void DeviceAdder::add_groups(const Segment& part, uint32_t use, const Tensor& sum,
                             bool has_before) {
  for (const StoredSums::Group& group : sums_.groups()) {
    if (!group.is_near) continue;
    const Tensor of_group = tensor(sums_.at(group, part, use), sums_.type(), part.num_elements);
    if (!has_before && sums_.type() == DType::F32) {
      stream_->copy(sum.data, of_group.data, of_group.bytes(), CopyKind::Within);
    } else {
      const Write write = has_before ? Write::Add : Write::Store;
      device_.kernels().submit(*stream_, Accumulate{sum, of_group, write});
    }
    has_before = true;
  }
}

/// `part`: of a trained parameter, in the portion.
void DeviceAdder::add_segment(ElementRange portion, Segment part, std::byte* gradient) {
  const DType type = layout_.gradient_type();
  Kernels& kernels = device_.kernels();
  sums_.for_each_in_one_slot(part, [&](const Segment& piece) {
    const uint64_t count = piece.num_elements;
    const uint64_t at = piece.first_element - portion.first;
    const Tensor sum = tensor(sum_ + at, DType::F32, count);
    add_groups(piece, 0, sum, false);
    for (uint32_t use = 1; use < layout_.parameter(piece.parameter).num_uses; ++use) {
      const Tensor of_use = tensor(sum_of_use_ + at, DType::F32, count);
      add_groups(piece, use, of_use, false);
      kernels.submit(*stream_, Accumulate{sum, of_use});
    }
    kernels.submit(*stream_,
                   RoundGradient{tensor(gradient + at * size_of(type), type, count), sum, {}, {}});
  });
}

/// Makes the gradient of a portion at `gradient`, and its partial norms on the device.
void DeviceAdder::add_on_stream(ElementRange portion, std::span<const Segment> segments,
                                std::byte* memory) {
  const Tensor gradient = tensor(memory, layout_.gradient_type(), portion.count);
  uint64_t num_trained = 0;
  for (const Segment& segment : segments) {
    if (trained_[segment.parameter]) num_trained += part_in(segment, portion).num_elements;
  }
  if (num_trained < portion.count) device_.kernels().submit(*stream_, FillZero{gradient});
  for (const Segment& segment : segments) {
    if (trained_[segment.parameter]) add_segment(portion, part_in(segment, portion), memory);
  }
  const Tensor partials = tensor(partials_, DType::F64, pieces_of(portion.count));
  device_.kernels().submit(*stream_, SquaredNormPieces{partials, gradient});
}

/// Makes the gradient of elements [first, first + count) of a chunk at `gradient`, and copies it to
/// `stored`, unless that is null. Blocks until all is done.
void DeviceAdder::add_portion(ChunkIndex chunk, ElementRange in_chunk, std::byte* gradient,
                              std::byte* stored, std::span<double> partials) {
  const uint64_t first = chunk * layout_.chunk_elements() + in_chunk.first;
  add_on_stream({first, in_chunk.count}, layout_.segments(chunk), gradient);
  const size_t norm_bytes = pieces_of(in_chunk.count) * sizeof(double);
  stream_->copy(pinned_.data(), partials_, norm_bytes, CopyKind::Store);
  if (stored != nullptr) {
    stream_->copy(stored, gradient, in_chunk.count * size_of(layout_.gradient_type()),
                  CopyKind::Store);
  }
  stream_->synchronize();
  std::memcpy(&partials[in_chunk.first / kPieceElements], pinned_.data(), norm_bytes);
}

template <class Add>
void DeviceAdder::for_each_portion(ChunkIndex chunk, const Add& add) {
  const uint64_t count = layout_.chunk_elements(chunk), at_once = elements_added_at_once(layout_);
  for (uint64_t first = 0; first < count; first += at_once) {
    add(ElementRange{first, std::min(at_once, count - first)});
  }
}

void DeviceAdder::add(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient,
                      std::span<double> partials) {
  const size_t size = size_of(layout_.gradient_type());
  std::byte* const stored =
      pinned_.data() + pieces_of(elements_added_at_once(layout_)) * sizeof(double);
  for_each_portion(chunk, [&](ElementRange portion) {
    add_portion(chunk, portion, gradient_, stored, partials);
    copy_by_all(team, gradient + portion.first * size, stored, portion.count * size);
  });
}

void DeviceAdder::add_on_device(ChunkIndex chunk, std::byte* gradient, std::span<double> partials) {
  const size_t size = size_of(layout_.gradient_type());
  for_each_portion(chunk, [&](ElementRange portion) {
    add_portion(chunk, portion, gradient + portion.first * size, nullptr, partials);
  });
}

/// Adds the groups of one use of a portion to `running`. Where no parameter has so many uses, or is
/// trained, `running` gets no defined values.
void DeviceAdder::add_use(ThreadTeam& team, ElementRange portion, std::span<const Segment> segments,
                          uint32_t use, float* running, bool has_before) {
  const size_t bytes = portion.count * sizeof(float);
  auto* const in_home = reinterpret_cast<std::byte*>(running);
  std::byte* const copied = is_home_pinned_ ? in_home : pinned_.data();
  if (has_before) {
    if (!is_home_pinned_) copy_by_all(team, copied, in_home, bytes);
    stream_->copy(sum_, copied, bytes, CopyKind::Load);
  }
  for (const Segment& segment : segments) {
    const bool has_use = layout_.parameter(segment.parameter).num_uses > use;
    if (!trained_[segment.parameter] || !has_use) continue;
    sums_.for_each_in_one_slot(part_in(segment, portion), [&](const Segment& piece) {
      const float* const sum = sum_ + (piece.first_element - portion.first);
      add_groups(piece, use, tensor(sum, DType::F32, piece.num_elements), has_before);
    });
  }
  stream_->copy(copied, sum_, bytes, CopyKind::Store);
  if (is_home_pinned_) return;
  stream_->synchronize();
  copy_by_all(team, in_home, copied, bytes);
}

void DeviceAdder::add_to(ThreadTeam& team, ChunkIndex chunk, float* running, bool has_before) {
  const uint64_t count = layout_.chunk_elements(chunk);
  const auto num_uses =
      static_cast<uint32_t>(layout_.running_sum_bytes(chunk) / sizeof(float) / count);
  for_each_portion(chunk, [&](ElementRange portion) {
    const ElementRange in_space{chunk * layout_.chunk_elements() + portion.first, portion.count};
    for (uint32_t use = 0; use < num_uses; ++use) {
      add_use(team, in_space, layout_.segments(chunk), use, running + use * count + portion.first,
              has_before);
    }
  });
  stream_->synchronize();
}

void DeviceAdder::update(const DeviceState& state, ChunkIndex chunk, bool after_norm) {
  state.submit_update(*stream_, device_.kernels(), chunk, state.gradient(chunk), after_norm,
                      coefficients_);
  stream_->synchronize();
}

}  // namespace ebb
