#include "model_zoo/state_header.h"

#include "device/planes.h"

namespace ebb {

StateFileHeader state_header(const Layout& layout, const OptimizerCounters& counters,
                             const std::map<std::string, uint64_t>& numbers) {
  StateFileHeader header{.weight_type = layout.weight_type(),
                         .planes = {},
                         .parameters = {},
                         .numbers = {{kNumUpdates, static_cast<uint64_t>(counters.num_updates)},
                                     {kNumSkipped, counters.num_skipped},
                                     {kNumSkippedInARow, counters.num_skipped_in_a_row}}};
  if (layout.weight_type() == DType::F16) {
    header.numbers[kLossScale] = counters.loss_scale.value;
    header.numbers[kNumGoodSteps] = counters.loss_scale.num_good_steps;
  }
  for (const PlaneInfo& plane : state_planes(layout.weight_type())) {
    header.planes.push_back(
        {std::string(plane.name), plane.bytes_per_group, plane.elements_per_group});
  }
  for (const ParameterId id : layout.call_order()) {
    header.parameters.push_back({layout.parameter(id).name, layout.parameter(id).shape});
  }
  header.numbers.insert(numbers.begin(), numbers.end());
  return header;
}

std::vector<size_t> state_positions(const Layout& layout) {
  std::vector<size_t> position(layout.num_parameters());
  size_t next = 0;
  for (const ParameterId id : layout.call_order()) position[id] = next++;
  return position;
}

}  // namespace ebb
