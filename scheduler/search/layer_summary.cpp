#include "scheduler/search/layer_summary.h"

namespace ebb {
namespace {

/// The sum over values that have memory of their own after the forward.
size_t bytes_of(const ObservedLayer& layer, bool of_results_only) {
  size_t bytes = 0;
  for (const ObservedValue& value : layer.values) {
    if (value.replaced_by < 0 && (value.used_outside || !of_results_only)) bytes += value.bytes;
  }
  return bytes;
}

}  // namespace

std::vector<LayerSummary> summarize_layers(const Recompute& recompute,
                                           std::span<const LayerRecompute> lists,
                                           std::span<const ObservedLayer> layers,
                                           const Machine& machine) {
  std::vector<LayerSummary> summaries;
  uint32_t num_together = 0;  // consecutive layers before that run again together with this one
  for (size_t i = 0; i < layers.size(); ++i) {
    const ObservedLayer& layer = layers[i];
    LayerSummary summary{.recomputed = recompute.of_layer(i)};
    if (lists[i].whole) {
      num_together = (num_together + 1) % recompute.layers_at_once;
      const bool is_last = num_together == 0 || i + 1 == layers.size() || !lists[i + 1].whole;
      if (is_last) summary.kept_bytes = bytes_of(layer, true);
      for (const ObservedCall& call : layer.calls) {
        summary.recompute_s += seconds_of(call.cost, machine);
      }
    } else {
      num_together = 0;
      summary.kept_bytes = bytes_of(layer, false);
      for (const uint32_t freed : lists[i].freed_values) {
        summary.kept_bytes -= layer.values[freed].bytes;
      }
      for (const uint32_t call : lists[i].repeated_calls) {
        summary.recompute_s += seconds_of(layer.calls[call].cost, machine);
      }
    }
    summaries.push_back(summary);
  }
  return summaries;
}

}  // namespace ebb
