// For tests of interrupted training: runs a case step by step, and copies its state to memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/planes.h"
#include "tests/trainer/cases.h"

namespace ebb::test {

/// Trains a case in parts, as the test requests.
class CaseRun {
 public:
  explicit CaseRun(const TrainingCase& run)
      : run_(run),
        model_(run.model, kMicroBatchSize, run.length, run.dtype),
        prepared_(prepare_case(model_, run)),
        device_(create_case_device(prepared_, run)),
        trainer_(model_, *device_, prepared_) {}

  Trainer& trainer() { return trainer_; }
  const Preparation& prepared() const { return prepared_; }
  /// Trains the steps [first, last). The data of a step depends only on its number.
  void train(uint32_t first, uint32_t last) {
    for (uint32_t step = first; step < last; ++step) {
      const Data data(run_.model, run_.length, run_.accumulation, 100 + step);
      const StepResult r = trainer_.step(data.micro_batches(), 1e-3 / (1 + step));
      outcome_.losses.push_back(r.loss);
      outcome_.norms.push_back(r.grad_norm);
    }
  }
  /// Losses and norms of all steps of this object, and the hash of the current state.
  Outcome outcome() {
    outcome_.hash = trainer_.state_hash();
    return outcome_;
  }

 private:
  TrainingCase run_;
  Gpt2 model_;
  Preparation prepared_;
  std::unique_ptr<Device> device_;
  Trainer trainer_;
  Outcome outcome_;
};

/// [parameter][plane]
using StateCopy = std::vector<std::vector<std::vector<std::byte>>>;

inline std::vector<std::byte> plane_of(const StateReader& reader, ParameterId id, size_t plane) {
  std::vector<std::byte> bytes;
  reader.read_plane(id, plane, [&](std::span<const std::byte> next) {
    bytes.insert(bytes.end(), next.begin(), next.end());
  });
  return bytes;
}

using Values32 = std::map<std::string, std::vector<float>>;  // by parameter

inline Values32 masters_of(Trainer& trainer) {
  Values32 masters;
  trainer.visit_parameters([&](std::string_view name, const Shape&, std::span<const float> values) {
    masters[std::string(name)].assign(values.begin(), values.end());
  });
  return masters;
}

/// The momenta; makes the updates that are left. With beta1 = 0 and without clipping they are the
/// gradients of the last step.
inline Values32 momenta_of(Trainer& trainer) {
  const Layout& layout = trainer.layout();
  size_t momentum = 0;
  while (state_planes(layout.weight_type())[momentum].name != "momentum") ++momentum;
  const StateReader reader = trainer.lock_state();
  Values32 momenta;
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    const std::vector<std::byte> bytes = plane_of(reader, id, momentum);
    std::vector<float>& values = momenta[layout.parameter(id).name];
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return momenta;
}

/// All planes of the state.
inline StateCopy copy_of(const StateReader& reader, size_t num_planes) {
  StateCopy copy(reader.layout().num_parameters());
  for (const ParameterId id : reader.parts()) {
    for (size_t plane = 0; plane < num_planes; ++plane) {
      copy[id].push_back(plane_of(reader, id, plane));
    }
  }
  return copy;
}

/// Reads the copy for Trainer::restore(). Leaves out the plane `forgotten` of each parameter.
inline Trainer::ReadPlane reader_of(const StateCopy& copy, size_t forgotten = SIZE_MAX) {
  struct Place {
    ParameterId id = 0;
    size_t plane = 0, at = 0;
  };
  return [&copy, forgotten, place = Place()](ParameterId id, size_t plane,
                                             std::span<std::byte> into) mutable {
    if (id != place.id || plane != place.plane) place = {id, plane, 0};
    if (plane != forgotten)
      std::copy_n(copy[id][plane].begin() + place.at, into.size(), into.begin());
    place.at += into.size();
  };
}

}  // namespace ebb::test
