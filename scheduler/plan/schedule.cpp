#include "scheduler/plan/schedule.h"

#include <fmt/format.h>

#include <functional>
#include <map>

namespace ebb {

std::string name_of(const Recompute& recompute, uint32_t num_layers) {
  std::map<ValueGroups, uint32_t, std::greater<>> layers;
  for (uint32_t i = 0; i < num_layers; ++i) ++layers[recompute.of_layer(i)];
  std::string text;
  for (const auto& [groups, count] : layers) {
    const std::string name = groups == kWholeLayer && recompute.layers_at_once > 1
                                 ? fmt::format("{} layers", recompute.layers_at_once)
                                 : name_of_groups(groups);
    if (layers.size() == 1) return name;
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", name, count);
  }
  return text.empty() ? name_of_groups(recompute.of_layer(0)) : text;
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
