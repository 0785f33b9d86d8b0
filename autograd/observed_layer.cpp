#include "autograd/observed_layer.h"

#include <algorithm>
#include <utility>

namespace ebb {

void LayerObserver::begin_layer(int32_t first_value) {
  layers_.emplace_back();
  first_values_.push_back(first_value);
  ends_.push_back(first_value);
  in_layer_ = true;
}

void LayerObserver::end_layer(int32_t result) {
  in_layer_ = false;
  const Place at = find(result);
  if (at.layer != nullptr) at.layer->values[at.value].used_outside = true;
}

LayerObserver::Place LayerObserver::find(int32_t value) {
  const auto after = std::ranges::upper_bound(first_values_, value);
  if (after == first_values_.begin()) return {};
  const auto layer = static_cast<size_t>(after - first_values_.begin()) - 1;
  if (value >= ends_[layer]) return {};
  return {&layers_[layer], static_cast<uint32_t>(value - first_values_[layer])};
}

void LayerObserver::reads_in_forward(int32_t value) {
  const Place at = find(value);
  if (at.layer == nullptr) return;
  if (in_layer_ && at.layer == &layers_.back()) {
    inputs_.push_back(at.value);
  } else {
    at.layer->values[at.value].used_outside = true;
  }
}

void LayerObserver::replaces(int32_t value) {
  reads_in_forward(value);
  const Place at = find(value);
  if (at.layer != nullptr && in_layer_) replaced_ = static_cast<int32_t>(at.value);
}

void LayerObserver::end_call(std::string_view name, int32_t first_value,
                             const std::vector<size_t>& bytes) {
  std::vector<uint32_t> inputs = std::exchange(inputs_, {});
  const int32_t replaced = std::exchange(replaced_, -1);
  if (!in_layer_) return;
  ObservedLayer& layer = layers_.back();
  const auto call = static_cast<uint32_t>(layer.calls.size());
  if (replaced >= 0) layer.values[replaced].replaced_by = first_value - first_values_.back();
  // Values of calls without a backward are kept.
  const auto first = static_cast<uint32_t>(first_value - first_values_.back());
  layer.values.resize(first, {.used_outside = true});
  for (const size_t size : bytes) layer.values.push_back({.call = call, .bytes = size});
  layer.calls.push_back({.name = name,
                         .place = num_calls_ - 1,
                         .first_value = first,
                         .num_values = static_cast<uint32_t>(bytes.size()),
                         .inputs = std::move(inputs)});
  ends_.back() = first_value + static_cast<int32_t>(bytes.size());
}

void LayerObserver::reads_in_backward(int32_t value) {
  const Place at = find(value);
  if (at.layer != nullptr) at.layer->values[at.value].read_in_backward = true;
}

}  // namespace ebb
