// The offsets of all parameters in the parameter space, which is divided into chunks.
//
// Parameters are packed in the order of their first use, each at a 256-byte aligned offset of one
// linear space. Chunk i of a space is its bytes [i * chunk_bytes, (i + 1) * chunk_bytes), so a
// parameter can be in several chunks. Three spaces have an entry for each element of a parameter,
// under the same number: weights (in the weight type), gradient sums (fp32; each further use of a
// tied weight has a range of its own after the parameters, and each further group of micro-batches
// has all these ranges once more) and gradients (in the gradient type). Chunks of a wider type have
// fewer elements: with bf16 weights, the sums of weight chunk 1 are in the sum chunks 2 and 3. The
// fourth space has the activations. A chunk of any space takes exactly one block.
//
// Immutable after construction, so thread-safe. A use or a range of rows that does not exist throws
// LogicError. Ids of parameters and indices of chunks are not checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/index.h"
#include "device/dtype.h"
#include "device/tensor.h"

namespace ebb {

using ParameterId = uint32_t;

struct ParameterInfo {
  std::string name;
  Shape shape;
  bool decay = true;  ///< weight decay applies; preparation clears it for vectors
  float learning_rate_factor = 1;
  uint32_t num_uses = 1;  ///< uses in one forward; more than one for a tied weight
};

enum class Space : uint8_t { Weights, GradientSums, Gradients, Activations };
inline constexpr int kNumSpaces = 4;
std::string_view name_of(Space space);

struct ChunkId {
  Space space = Space::Weights;
  uint32_t index = 0;  ///< in its space
  bool operator==(const ChunkId&) const = default;
};

/// Chunks [first, last).
struct ChunkRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

/// Elements [first, first + count) of a space.
struct ElementRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

/// Rows of a parameter: all its dimensions but the last; for a vector, its elements. A count of 0
/// means all rows.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const RowRange&) const = default;
  Tensor of(const Tensor& whole) const {
    if (count == 0) return whole;
    if (whole.shape.rank() != 1) return whole.slice_rows(first, count);
    return whole.reshape({whole.num_elements(), 1}).slice_rows(first, count).reshape({count});
  }
  /// All rows of a parameter.
  static RowRange all(const Shape& shape) {
    if (shape.rank() < 2) return {0, shape.num_elements()};
    return {0, shape.num_elements() / shape[-1]};
  }
};

/// The part of one parameter in one parameter chunk. The unit is elements.
struct Segment {
  ParameterId parameter = 0;
  uint64_t first_element = 0;  ///< in the parameter space
  uint64_t num_elements = 0;
};

class Layout {
 public:
  /// `parameters` by id; `call_order` is a permutation of the ids, the order in which they are
  /// packed. Throws ConfigError if `chunk_bytes` is not a multiple of the bytes of 65,536
  /// weights, if `gradient_type` is narrower than `weight_type`, or if there are too many chunks.
  /// `num_groups`: so many groups of micro-batches have gradient sums of their own.
  Layout(std::vector<ParameterInfo> parameters, std::vector<ParameterId> call_order,
         DType weight_type, DType gradient_type, size_t chunk_bytes, uint32_t num_groups = 1);

  size_t chunk_bytes() const { return chunk_bytes_; }
  DType weight_type() const { return weight_type_; }
  DType gradient_type() const { return gradient_type_; }

  uint32_t num_parameters() const { return static_cast<uint32_t>(parameters_.size()); }
  const ParameterInfo& parameter(ParameterId id) const { return parameters_[id].info; }
  uint64_t first_element(ParameterId id) const { return parameters_[id].first_element; }
  uint64_t num_elements(ParameterId id) const {
    return static_cast<uint64_t>(parameters_[id].info.shape.num_elements());
  }
  std::span<const ParameterId> call_order() const { return call_order_; }
  /// Elements of all parameters of the model, without padding.
  uint64_t num_model_parameters() const { return num_model_parameters_; }
  /// Elements of the parameter space, with padding between parameters.
  uint64_t num_space_elements() const { return num_space_elements_; }
  /// The first element of the gradient sum of one use of a parameter in one group, in the space of
  /// gradient sums. Throws LogicError unless use < num_uses and group < num_groups(). In group 0
  /// the sum of use 0 has the numbers of the parameter itself.
  uint64_t first_sum_element(ParameterId id, uint32_t use, uint32_t group = 0) const;
  /// The elements of some rows of a parameter in the space of weights, and in one of its gradient
  /// sums.
  ElementRange weight_elements(ParameterId id, RowRange rows) const;
  ElementRange sum_elements(ParameterId id, uint32_t use, RowRange rows, uint32_t group = 0) const;
  /// The groups of micro-batches that have gradient sums of their own. The sums of each group begin
  /// with a chunk, and take this number of chunks.
  uint32_t num_groups() const { return num_groups_; }
  uint32_t sum_chunks_per_group() const { return num_chunks(Space::GradientSums) / num_groups_; }

  /// Parameter chunks (the chunks of the weight space).
  uint32_t num_chunks() const { return num_chunks(Space::Weights); }
  /// Zero for the activations: their number depends on the model, and the layout does not know it.
  uint32_t num_chunks(Space space) const { return num_chunks_[static_cast<int>(space)]; }
  uint64_t chunk_elements() const { return chunk_bytes_ / size_of(weight_type_); }
  /// The elements of a parameter chunk that are in use. Padding between parameters is in use, so
  /// only the last chunk has unused elements.
  uint64_t chunk_elements(ChunkIndex chunk) const;
  /// The segments of a parameter chunk in the order of their elements.
  std::span<const Segment> segments(ChunkIndex chunk) const;
  /// The bytes of the fp32 sum of the gradients of a parameter chunk over micro-batches, where each
  /// use has a sum of its own: so many times chunk_elements(chunk) as the most uses of a parameter
  /// in it.
  size_t running_sum_bytes(ChunkIndex chunk) const;
  /// The number of chunks of the gradient space for the gradient of one parameter chunk; the last
  /// parameter chunk may have fewer.
  uint32_t gradient_chunks_per_chunk() const {
    return static_cast<uint32_t>(size_of(gradient_type_) / size_of(weight_type_));
  }

  /// The type of the elements of a space; F32 for activations.
  DType type_of(Space space) const;
  /// The chunks of `space` that contain the elements [first, first + count). REQUIRES: count > 0.
  ChunkRange chunks(Space space, uint64_t first, uint64_t count) const;
  ChunkRange chunks(Space space, ElementRange range) const {
    return chunks(space, range.first, range.count);
  }
  /// The bytes of a chunk that are in use. Only the last chunk of a space, or of the sums of a
  /// group, has unused bytes; chunks of activations have none.
  size_t used_bytes(ChunkId id) const;
  /// Bytes of a whole space, in chunks.
  size_t space_bytes(Space space) const { return num_chunks(space) * chunk_bytes_; }

  /// The gradient norm is summed in so many parts of 65,536 elements. Padding is counted; the last
  /// part may be shorter.
  uint64_t num_pieces() const;
  static constexpr size_t kAlignmentBytes = 256;

 private:
  struct Placed {
    ParameterInfo info;
    uint64_t first_element;
    uint64_t first_extra_sum;  // of use 1; the sums of further uses follow
  };
  uint64_t aligned_elements(uint64_t count) const;
  void place();
  void cut_segments();

  std::vector<Placed> parameters_;
  std::vector<ParameterId> call_order_;
  DType weight_type_;
  DType gradient_type_;
  size_t chunk_bytes_;
  uint32_t num_groups_;
  uint64_t num_model_parameters_ = 0;
  uint64_t num_space_elements_ = 0;
  uint64_t num_sum_elements_ = 0;  // of one group
  uint32_t num_chunks_[kNumSpaces] = {};
  std::vector<Segment> segments_;
  std::vector<uint32_t> first_segment_;  // of each chunk, and one past the last
};

}  // namespace ebb
