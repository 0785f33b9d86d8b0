#include "autograd/recompute.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ebb {
namespace {

enum class CallKind : uint8_t { Norm, Activation, Attention, Product, Other };

CallKind kind_of(std::string_view name) {
  static constexpr std::pair<std::string_view, CallKind> kKinds[] = {
      {"layer_norm", CallKind::Norm},    {"rms_norm", CallKind::Norm},
      {"head_norm", CallKind::Norm},     {"activation", CallKind::Activation},
      {"swiglu", CallKind::Activation},  {"multiply", CallKind::Activation},
      {"softmax", CallKind::Activation}, {"attention", CallKind::Attention},
      {"linear", CallKind::Product}};
  const auto* const found = std::ranges::find(kKinds, name, [](const auto& k) { return k.first; });
  return found == std::end(kKinds) ? CallKind::Other : found->second;
}

/// What takes the output of a product: an activation function, attention, or neither. Calls between
/// them that are no products, such as the rotation of queries, are passed.
ValueGroups group_of_product(const ObservedLayer& layer, size_t product) {
  std::vector<bool> reached(layer.values.size());
  const auto mark_outputs = [&](const ObservedCall& call) {
    for (uint32_t i = 0; i < call.num_values; ++i) reached[call.first_value + i] = true;
  };
  mark_outputs(layer.calls[product]);
  for (size_t i = product + 1; i < layer.calls.size(); ++i) {
    const ObservedCall& call = layer.calls[i];
    if (std::ranges::none_of(call.inputs, [&](uint32_t v) { return reached[v]; })) continue;
    switch (kind_of(call.name)) {
      case CallKind::Activation:
        return kMlp;
      case CallKind::Attention:
        return kAttention;
      case CallKind::Product:
        break;
      default:
        mark_outputs(call);
    }
  }
  return kOthers;
}

/// Decides about the values of a layer.
class Lists {
 public:
  Lists(const ObservedLayer& layer, ValueGroups groups)
      : layer_(layer), is_kept_(layer.values.size()) {
    const std::vector<ValueGroups> group = groups_of(layer);
    for (size_t c = 0; c < layer.calls.size(); ++c) {
      const ObservedCall& call = layer.calls[c];
      const auto values = std::span(layer.values).subspan(call.first_value, call.num_values);
      const bool stays =
          (group[c] & groups) == 0 || std::ranges::any_of(values, &ObservedValue::used_outside);
      for (uint32_t i = 0; i < call.num_values; ++i) {
        const ObservedValue& value = values[i];
        is_kept_[call.first_value + i] =
            value.used_outside || (stays && value.read_in_backward && value.replaced_by < 0);
      }
    }
    bool is_done = false;
    while (!is_done) is_done = find_repeated();
  }

  LayerRecompute take() {
    LayerRecompute lists;
    for (uint32_t v = 0; v < layer_.values.size(); ++v) {
      if (!is_kept_[v] && layer_.values[v].replaced_by < 0) lists.freed_values.push_back(v);
    }
    for (uint32_t c = 0; c < layer_.calls.size(); ++c) {
      if (is_repeated_[c]) lists.repeated_calls.push_back(c);
    }
    return lists;
  }

 private:
  /// Finds the calls that run again. A call makes all of its outputs, so none of them may be kept.
  /// Returns false if one more value has to be kept because of that.
  bool find_repeated() {
    is_repeated_.assign(layer_.calls.size(), false);
    keeps_more_ = false;
    for (uint32_t v = 0; v < layer_.values.size(); ++v) {
      if (layer_.values[v].read_in_backward && !is_kept_[v] && !repeat_for(v)) return false;
    }
    return true;
  }

  bool repeat_for(uint32_t value) {
    const uint32_t c = layer_.values[value].call;
    if (is_repeated_[c]) return true;
    const ObservedCall& call = layer_.calls[c];
    for (uint32_t i = 0; i < call.num_values; ++i) {
      if (is_kept_[call.first_value + i]) return keep_instead(value);
    }
    is_repeated_[c] = true;
    for (const uint32_t input : call.inputs) {
      if (!is_kept_[input] && !repeat_for(input)) return keep_instead(value);
    }
    return true;
  }

  /// Keeps the value, unless that is not possible or another value is kept already.
  bool keep_instead(uint32_t value) {
    const uint32_t last = last_in_memory_of(value);
    if (!keeps_more_ && !is_kept_[last]) keeps_more_ = is_kept_[last] = true;
    return false;
  }

  /// The value itself, or the one that a call in place has made of it last.
  uint32_t last_in_memory_of(uint32_t value) const {
    while (layer_.values[value].replaced_by >= 0) {
      value = static_cast<uint32_t>(layer_.values[value].replaced_by);
    }
    return value;
  }

  const ObservedLayer& layer_;
  std::vector<bool> is_kept_;      // by value
  std::vector<bool> is_repeated_;  // by call
  bool keeps_more_ = false;
};

}  // namespace

std::vector<ValueGroups> groups_of(const ObservedLayer& layer) {
  std::vector<ValueGroups> groups;
  for (size_t c = 0; c < layer.calls.size(); ++c) {
    const ObservedCall& call = layer.calls[c];
    switch (kind_of(call.name)) {
      case CallKind::Norm:
        groups.push_back(kNorms);
        break;
      case CallKind::Activation:
        groups.push_back(kActivations);
        break;
      case CallKind::Attention:
        groups.push_back(kAttention);
        break;
      case CallKind::Product:
        groups.push_back(group_of_product(layer, c));
        break;
      case CallKind::Other: {  // work in place belongs to the call that made the value
        const auto replaced = std::ranges::find_if(call.inputs, [&](uint32_t v) {
          return layer.values[v].replaced_by == static_cast<int32_t>(call.first_value);
        });
        const bool has_group =
            replaced != call.inputs.end() && !layer.values[*replaced].used_outside;
        groups.push_back(has_group ? groups[layer.values[*replaced].call] : kOthers);
      }
    }
  }
  return groups;
}

LayerRecompute layer_recompute(const ObservedLayer& layer, ValueGroups groups) {
  return Lists(layer, groups).take();
}

std::vector<LayerRecompute> recompute_lists(const Recompute& recompute,
                                            std::span<const ObservedLayer> layers) {
  std::vector<LayerRecompute> lists;
  for (size_t i = 0; i < layers.size(); ++i) {
    const ValueGroups groups = recompute.of_layer(i);
    if (recompute.layers_at_once > 1 && groups == kWholeLayer) {
      lists.push_back({.whole = true});
    } else {
      lists.push_back(layer_recompute(layers[i], groups));
    }
  }
  return lists;
}

std::string name_of_groups(ValueGroups groups) {
  static constexpr std::pair<ValueGroups, std::string_view> kSets[] = {
      {kKeepAll, "none"},
      {kNormsLevel, "norms"},
      {kMlpLevel, "mlp"},
      {kAttentionLevel, "attention"},
      {kWholeLayer, "layer"}};
  static constexpr std::pair<ValueGroups, std::string_view> kGroups[] = {
      {kNorms, "norm outputs"},
      {kActivations, "activation outputs"},
      {kMlp, "MLP products"},
      {kAttention, "attention products"},
      {kOthers, "others"}};
  for (const auto& [set, name] : kSets) {
    if (set == groups) return std::string(name);
  }
  std::string text;
  for (const auto& [group, name] : kGroups) {
    if ((groups & group) == 0) continue;
    if (!text.empty()) text += " + ";
    text += name;
  }
  return text;
}

}  // namespace ebb
