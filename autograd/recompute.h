// Which values of a layer are recomputed before its backward, instead of kept until then.
//
// The values that a layer makes are in groups, by the call that made them. A Recompute names the
// groups for each layer. layer_recompute() turns them into two lists for the tape, with what a dry
// run has seen of the layer (autograd/observed_layer.h): the values that are freed when the forward
// of the layer ends, and the calls that run again before its backward. Only calls run again whose
// outputs the backward needs: the last product of a layer never does. Korthikanti et al., arXiv
// 2205.05198, call this selective recomputation.
//
// No choice changes a bit of a result, because a call runs again with the same inputs. Plain
// values, and pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autograd/observed_layer.h"

namespace ebb {

/// A set of groups: a sum of the following numbers.
using ValueGroups = uint8_t;

inline constexpr ValueGroups kKeepAll = 0;
inline constexpr ValueGroups kNorms = 1;        ///< outputs of norms
inline constexpr ValueGroups kActivations = 2;  ///< outputs of activation functions, and products
                                                ///< of two values: calls that memory limits
inline constexpr ValueGroups kMlp = 4;          ///< products that an activation function takes
inline constexpr ValueGroups kAttention = 8;    ///< queries, keys, values, and what attention makes
inline constexpr ValueGroups kOthers = 16;      ///< all others, such as sums of residuals
// Sets that the planner and --recompute use. Each adds the group whose calls take the most time for
// the memory that they free.
inline constexpr ValueGroups kNormsLevel = kNorms + kActivations;       // "norms"
inline constexpr ValueGroups kMlpLevel = kNormsLevel + kMlp;            // "mlp"
inline constexpr ValueGroups kAttentionLevel = kMlpLevel + kAttention;  // "attention"
inline constexpr ValueGroups kWholeLayer = kAttentionLevel + kOthers;   // "layer"

/// The group of each call's outputs, by the names of the calls and by what takes the outputs.
std::vector<ValueGroups> groups_of(const ObservedLayer& layer);

/// Which groups each layer recomputes.
struct Recompute {
  /// Layer i recomputes groups[i % groups.size()]. Empty: no layer recomputes anything.
  std::vector<ValueGroups> groups = {};
  /// If > 1: so many consecutive layers that recompute kWholeLayer are recomputed together. Only
  /// the input of the first is kept, but more activations exist during the backward.
  uint32_t layers_at_once = 1;

  ValueGroups of_layer(size_t layer) const {
    return groups.empty() ? kKeepAll : groups[layer % groups.size()];
  }
  auto operator<=>(const Recompute&) const = default;  ///< the order has no meaning
};

/// What the tape does with a layer.
struct LayerRecompute {
  /// The layer's function runs again as a whole, maybe together with other layers. The lists are
  /// empty then.
  bool whole = false;
  std::vector<uint32_t> freed_values = {};    ///< freed at the end of the layer's forward
  std::vector<uint32_t> repeated_calls = {};  ///< run again before its backward, in this order
};

/// The lists for these groups. Values that nothing needs after the forward are freed in any case.
/// A value that is used outside of the layer is kept in any case.
LayerRecompute layer_recompute(const ObservedLayer& layer, ValueGroups groups);

/// One for each layer.
std::vector<LayerRecompute> recompute_lists(const Recompute& recompute,
                                            std::span<const ObservedLayer> layers);

/// "none", "norms", "mlp", "attention" or "layer"; for other sets the groups: "norm outputs + MLP
/// products".
std::string name_of_groups(ValueGroups groups);

}  // namespace ebb
