// The arguments of kernels (device/kernels.h) that are neither tensors nor numbers.
#pragma once

#include <cstdint>

#include "device/dropout.h"
#include "device/tensor.h"

namespace ebb {

/// Whether a result is stored or added to the old value. The first contribution to a gradient is
/// stored, later contributions are added. A contribution is always summed from zero in fp32 first,
/// and then added once.
enum class Write : uint8_t { Store, Add };

/// GeluTanh is the tanh formula of GPT-2. Gelu is exact, by the error function, as in BERT.
enum class Activation : uint8_t { GeluTanh, Relu, Gelu };

/// The parameters of attention. `document_starts` (B, T) int32 is for packed samples: element i is
/// the position at which the document of token i starts, counted from the start of its sequence;
/// null: each sequence is one document. Grouped queries: if there are fewer heads of keys and
/// values than of queries, query head h reads key head h / (num_heads / num_kv_heads). The size D
/// of a head follows from the tensors.
struct AttentionShape {
  int64_t num_heads = 1;
  bool causal = true;
  Tensor document_starts = {};
  int64_t num_kv_heads = 0;  ///< divides num_heads; 0: as many as num_heads
  int64_t window = 0;    ///< only if causal: a query sees window tokens, itself the last; 0: all
  float scale = 0;       ///< the factor of the scores before the softmax; 0: 1 / sqrt(D)
  Dropout dropout = {};  ///< of the attention probabilities

  int64_t kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
};

/// The numbers of heads in a row of qkv. A row has (NH + 2 NKV) D columns: queries, then keys, then
/// values.
struct HeadCounts {
  int64_t queries = 1;
  int64_t keys = 1;  ///< there are as many heads of values
};

/// The direction in which ApplyRotary turns pairs. The backward turns the gradient back.
enum class RotaryDirection : uint8_t { Forward, Backward };

/// A slice of logits. Its columns are the classes first, ..., first + count - 1, and padding.
struct ClassSlice {
  int64_t first = 0, count = 0;
  int64_t num_classes = 0;  ///< of the whole classifier, not of the slice

  bool is_last() const { return first + count == num_classes; }
};

/// Rows of logits, and of tensors (N, OC) of linear layers, have fewer columns of padding than
/// this.
inline constexpr int64_t kMostPadding = 64;

/// The logits that a kind of device computes fastest. Results depend on this shape, so the shape
/// must not depend on a budget.
struct LogitsShape {
  int64_t most_elements = int64_t{1} << 24;  ///< of the logits that exist at a time
  int64_t column_multiple = 1;               ///< rows have padding up to a multiple of this
};

/// The coefficients of an AdamW update, rounded to fp32. cpu_adam/adamw.h has the formulas.
struct AdamWCoefficients {
  float gradient_scale;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float decay_rate;
  float step_size;
  float v_correction;
  float epsilon;
  uint32_t skip = 0;  ///< not 0: the update changes nothing
};

/// Elements [first, first + count) of each plane, which are updated with coefficients[which].
struct UpdateRange {
  int64_t first = 0;
  int64_t count = 0;
  uint32_t which = 0;
};

/// Elements of a piece: the unit in which gradient norms are summed.
inline constexpr int64_t kPieceElements = 65536;

}  // namespace ebb
