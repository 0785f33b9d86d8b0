#include "scheduler/plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace ebb {

uint32_t recomputed_layers(const Recompute& recompute, uint32_t num_layers) {
  const uint32_t first = std::min(num_layers, recompute.first);
  const uint32_t of = std::min(num_layers, recompute.of);
  return of == 0 ? 0 : num_layers / of * first + std::min(first, num_layers % of);
}

std::string name_of(const Recompute& recompute) {
  switch (recompute.layers_at_once) {
    case 0:
      return "none";
    case 1:
      return "layer";
    default:
      return fmt::format("{} layers", recompute.layers_at_once);
  }
}

std::string_view name_of(ActivationPlacement placement) {
  static constexpr std::string_view kNames[] = {"device", "offload"};
  return kNames[static_cast<int>(placement)];
}

std::string_view name_of(MicroBatchOrder order) {
  static constexpr std::string_view kNames[] = {"horizontal", "vertical"};
  return kNames[static_cast<int>(order)];
}

std::string_view name_of(UpdateOrder update) {
  static constexpr std::string_view kNames[] = {"wait", "overlap", "speculate"};
  return kNames[static_cast<int>(update)];
}

}  // namespace ebb
