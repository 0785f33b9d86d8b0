#include "state.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

std::future<void> start_saving(ebb::Trainer& trainer, const std::string& path) {
  // The lock is taken now. write_state() releases each parameter as soon as it is written, and an
  // update waits for a parameter that is not.
  return std::async(std::launch::async, [reader = trainer.lock_state(), path]() mutable {
    ebb::write_state(std::move(reader), path);
  });
}

std::future<float> start_largest_master(ebb::Trainer& trainer) {
  return std::async(std::launch::async, [reader = trainer.lock_state()]() mutable {
    float largest = 0;
    for (size_t i = 0; i < reader.parts().size(); ++i) {
      const ebb::ParameterId id = reader.parts()[i];
      std::vector<float> values(reader.layout().num_elements(id));
      reader.read_masters(id, 0, values);
      reader.release(i + 1);  // updates may change this parameter now
      for (const float value : values) largest = std::max(largest, std::abs(value));
    }
    return largest;
  });
}

Snapshot::Snapshot(ebb::Trainer& trainer) {
  const ebb::StateReader reader = trainer.lock_state();  // until the end of this function
  const ebb::Layout& layout = trainer.layout();
  counters_ = reader.counters();
  planes_.resize(layout.num_parameters());
  for (const ebb::ParameterId id : layout.call_order()) {
    planes_[id].resize(ebb::state_planes(layout.weight_type()).size());
    for (size_t plane = 0; plane < planes_[id].size(); ++plane) {
      std::vector<std::byte>& bytes = planes_[id][plane];
      reader.read_plane(id, plane, [&bytes](std::span<const std::byte> part) {
        bytes.insert(bytes.end(), part.begin(), part.end());
      });
    }
  }
}

void Snapshot::restore(ebb::Trainer& trainer) const {
  std::pair<ebb::ParameterId, size_t> current = {UINT32_MAX, 0};
  size_t offset = 0;  // in the current plane, which comes in parts
  trainer.restore(counters_, [&](ebb::ParameterId id, size_t plane, std::span<std::byte> into) {
    if (current != std::pair(id, plane)) offset = 0;
    current = {id, plane};
    std::copy_n(planes_[id][plane].begin() + static_cast<std::ptrdiff_t>(offset), into.size(),
                into.begin());
    offset += into.size();
  });
}

void copy_weights(ebb::Trainer& from, ebb::Trainer& to) {
  from.visit_parameters([&to](std::string_view name, const ebb::Shape&,
                              std::span<const float> values) { to.write_parameter(name, values); });
}

void scale_weights(ebb::Trainer& trainer, const ebb::Model& model, std::string_view name,
                   float factor) {
  const ebb::Parameters& parameters = model.parameters();
  for (ebb::ParameterId id = 0; id < parameters.size(); ++id) {
    if (parameters[id].name != name) continue;
    std::vector<float> part(1 << 16);
    const auto count = static_cast<uint64_t>(parameters[id].shape.num_elements());
    for (uint64_t first = 0; first < count; first += part.size()) {
      part.resize(std::min<uint64_t>(part.size(), count - first));
      trainer.read_parameter(id, first, part);
      for (float& value : part) value *= factor;
      trainer.write_parameter(id, first, part);
    }
    return;
  }
  throw ebb::ConfigError("the model has no parameter '" + std::string(name) + "'");
}
