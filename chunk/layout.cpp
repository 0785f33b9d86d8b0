#include "chunk/layout.h"

#include <fmt/format.h>

#include <bit>

#include "device/kernel_arguments.h"

namespace ebb {
namespace {

// The largest model that was planned here, GPT-3 175B, has 5,217 chunks of 64 MiB.
constexpr uint64_t kMostChunks = uint64_t{1} << 17;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

void check_chunk_bytes(size_t chunk_bytes, DType weight_type) {
  const size_t piece_bytes = kPieceElements * size_of(weight_type);
  if (chunk_bytes == 0 || chunk_bytes % piece_bytes != 0) {
    throw ConfigError(fmt::format(
        "chunk size {} is not a multiple of the piece in which gradient norms are summed ({} = {} "
        "{} "
        "elements); try {}",
        format_bytes(chunk_bytes), format_bytes(piece_bytes), kPieceElements, name_of(weight_type),
        format_bytes(std::max<size_t>(1, chunk_bytes / piece_bytes) * piece_bytes)));
  }
}

/// A plan has several operations for each chunk, and a search compares many plans.
void check_num_chunks(uint64_t bytes, size_t chunk_bytes) {
  if (bytes / chunk_bytes < kMostChunks) return;
  throw ConfigError(
      fmt::format("chunks of {} divide {} of gradient sums into {} chunks, and a plan may have {}: "
                  "give a chunk "
                  "size of at least {} (`chunk_bytes`)",
                  format_bytes(chunk_bytes), format_bytes(bytes), bytes / chunk_bytes, kMostChunks,
                  format_bytes(std::bit_ceil(bytes / kMostChunks + 1))));
}

}  // namespace

std::string_view name_of(Space space) {
  static constexpr std::string_view kNames[] = {"weights", "gradient sums", "gradients",
                                                "activations"};
  return kNames[static_cast<int>(space)];
}

Layout::Layout(std::vector<ParameterInfo> parameters, std::vector<ParameterId> call_order,
               DType weight_type, DType gradient_type, size_t chunk_bytes, uint32_t num_groups)
    : call_order_(std::move(call_order)),
      weight_type_(weight_type),
      gradient_type_(gradient_type),
      chunk_bytes_(chunk_bytes),
      num_groups_(num_groups) {
  check_chunk_bytes(chunk_bytes, weight_type);
  if (size_of(gradient_type) < size_of(weight_type)) {
    throw ConfigError(
        fmt::format("gradients of {} for weights of {}: gradients cannot be narrower than "
                    "the weights; try `gradient_dtype` {}",
                    name_of(gradient_type), name_of(weight_type), name_of(weight_type)));
  }
  EBB_CHECK(call_order_.size() == parameters.size(), "the call order names every parameter once");
  EBB_CHECK(num_groups > 0, "there is at least one group of micro-batches");
  parameters_.reserve(parameters.size());
  for (ParameterInfo& info : parameters) parameters_.push_back({std::move(info), 0, 0});
  place();
  cut_segments();
}

uint64_t Layout::aligned_elements(uint64_t count) const {
  return round_up(count, kAlignmentBytes / size_of(weight_type_));
}

void Layout::place() {
  for (ParameterId id : call_order_) {
    Placed& p = parameters_[id];
    const uint64_t count = static_cast<uint64_t>(p.info.shape.num_elements());
    p.first_element = num_space_elements_;
    num_space_elements_ += aligned_elements(count);
    num_model_parameters_ += count;
  }
  num_sum_elements_ = num_space_elements_;
  for (ParameterId id : call_order_) {
    Placed& p = parameters_[id];
    p.first_extra_sum = num_sum_elements_;
    const uint64_t count = static_cast<uint64_t>(p.info.shape.num_elements());
    num_sum_elements_ += (p.info.num_uses - 1) * aligned_elements(count);
  }
  const auto count_chunks = [&](Space space, uint64_t elements) {
    const uint64_t bytes = elements * size_of(type_of(space));
    num_chunks_[static_cast<int>(space)] =
        static_cast<uint32_t>((bytes + chunk_bytes_ - 1) / chunk_bytes_);
  };
  check_num_chunks(num_groups_ * num_sum_elements_ * size_of(type_of(Space::GradientSums)),
                   chunk_bytes_);
  count_chunks(Space::Weights, num_space_elements_);
  count_chunks(Space::Gradients, num_space_elements_);
  count_chunks(Space::GradientSums, num_sum_elements_);
  num_chunks_[static_cast<int>(Space::GradientSums)] *= num_groups_;
}

size_t Layout::running_sum_bytes(ChunkIndex chunk) const {
  uint32_t most_uses = 1;
  for (const Segment& segment : segments(chunk)) {
    most_uses = std::max(most_uses, parameter(segment.parameter).num_uses);
  }
  return chunk_elements(chunk) * sizeof(float) * most_uses;
}

void Layout::cut_segments() {
  first_segment_.assign(num_chunks() + 1, 0);
  uint32_t chunk = 0;
  const auto open_chunks_until = [&](uint32_t last) {
    while (chunk < last) first_segment_[++chunk] = static_cast<uint32_t>(segments_.size());
  };
  for (ParameterId id : call_order_) {
    uint64_t first = first_element(id);
    const uint64_t end = first + num_elements(id);
    while (first < end) {
      const uint32_t c = static_cast<uint32_t>(first / chunk_elements());
      open_chunks_until(c);
      const uint64_t stop = std::min(end, (c + 1) * chunk_elements());
      segments_.push_back({id, first, stop - first});
      first = stop;
    }
  }
  open_chunks_until(num_chunks());
}

uint64_t Layout::first_sum_element(ParameterId id, uint32_t use, uint32_t group) const {
  EBB_CHECK(use < parameters_[id].info.num_uses && group < num_groups_,
            "a use of a parameter or a group that the layout does not know");
  const uint64_t of_group = sum_chunks_per_group() * (chunk_bytes_ / sizeof(float));
  const uint64_t begin = group * of_group;
  if (use == 0) return begin + first_element(id);
  return begin + parameters_[id].first_extra_sum + (use - 1) * aligned_elements(num_elements(id));
}

ElementRange Layout::weight_elements(ParameterId id, RowRange rows) const {
  const Shape& shape = parameters_[id].info.shape;
  if (rows.count == 0) return {first_element(id), num_elements(id)};
  const int64_t columns = shape.rank() == 1 ? 1 : shape[-1];
  EBB_CHECK(rows.first >= 0 && (rows.first + rows.count) * columns <= shape.num_elements(),
            "rows that the parameter does not have");
  return {first_element(id) + static_cast<uint64_t>(rows.first * columns),
          static_cast<uint64_t>(rows.count * columns)};
}

ElementRange Layout::sum_elements(ParameterId id, uint32_t use, RowRange rows,
                                  uint32_t group) const {
  ElementRange range = weight_elements(id, rows);
  range.first += first_sum_element(id, use, group) - first_element(id);
  return range;
}

uint64_t Layout::chunk_elements(ChunkIndex chunk) const {
  return std::min(chunk_elements(), num_space_elements_ - chunk * chunk_elements());
}

std::span<const Segment> Layout::segments(ChunkIndex chunk) const {
  return std::span(segments_).subspan(first_segment_[chunk],
                                      first_segment_[chunk + 1] - first_segment_[chunk]);
}

DType Layout::type_of(Space space) const {
  switch (space) {
    case Space::Weights:
      return weight_type_;
    case Space::Gradients:
      return gradient_type_;
    case Space::GradientSums:
    case Space::Activations:
      break;
  }
  return DType::F32;
}

ChunkRange Layout::chunks(Space space, uint64_t first, uint64_t count) const {
  const uint64_t size = size_of(type_of(space));
  return {static_cast<uint32_t>(first * size / chunk_bytes_),
          static_cast<uint32_t>(((first + count) * size + chunk_bytes_ - 1) / chunk_bytes_)};
}

size_t Layout::used_bytes(ChunkId id) const {
  if (id.space == Space::Activations) return chunk_bytes_;
  const bool is_sum = id.space == Space::GradientSums;
  const uint64_t elements = is_sum ? num_sum_elements_ : num_space_elements_;
  const uint32_t index = is_sum ? id.index % sum_chunks_per_group() : id.index;
  return std::min(chunk_bytes_, elements * size_of(type_of(id.space)) - index * chunk_bytes_);
}

uint64_t Layout::num_pieces() const {
  return (num_space_elements_ + kPieceElements - 1) / kPieceElements;
}

}  // namespace ebb
