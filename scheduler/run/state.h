// The training state, seen as parameters wherever it lives: initial values, reading and writing
// masters and planes, the state's hash. Copies on the device of weights that live at home are not
// it.
//
// Thread-safety: memory's; what lives on the device may be looked at by several threads. Nothing
// here runs on a chunk that an update is at work on.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/parameters.h"
#include "chunk/home.h"
#include "chunk/layout.h"
#include "cpu_adam/adamw.h"
#include "device/errors.h"
#include "scheduler/run/device_state.h"
#include "system/thread_team.h"

namespace ebb {

/// Calls f(T{}) for the type of the weights.
template <class F>
void with_weight_type(DType type, const F& f) {
  switch (type) {
    case DType::F32:
      return f(float{});
    case DType::BF16:
      return f(BF16{});
    case DType::F16:
      return f(F16{});
    default:
      throw LogicError("weights are of a float type");
  }
}

/// Initial values of elements [first, first + out.size()) of a parameter, from the seed: the same
/// for every layout, and however they are cut. REQUIRES: first is a multiple of 4.
void initial_values(const Parameter& parameter, uint64_t seed, uint64_t first,
                    std::span<float> out);
/// The same for elements [first, first + count), in pieces that `take` is given, by several
/// threads.
using TakeInitial = std::function<void(uint64_t first, std::span<const float> values)>;
void initialise(const Parameter& parameter, uint64_t seed, uint64_t first, uint64_t count,
                ThreadTeam& team, const TakeInitial& take);

/// The parameter of this name. Throws ConfigError where there is none.
ParameterId parameter_named(const Layout& layout, std::string_view name);

/// Takes what comes next of a plane of a parameter, from its first element to its last.
using VisitPlane = std::function<void(std::span<std::byte>)>;

class State {
 public:
  State(const Layout& layout, const Home& home, const DeviceState& device_state)
      : layout_(layout), home_(home), device_state_(device_state) {}

  /// Of a chunk that lives there: without a gradient.
  Planes home_planes(uint32_t chunk) const;
  /// Masters from the seed, by parameter name and element: the same for every layout. Calls are
  /// zero already.
  void initialise(const Parameters& parameters, uint64_t seed, ThreadTeam& team);
  /// Elements [first, first + masters.size()) of a parameter. REQUIRES: they exist.
  void read(ParameterId id, uint64_t first, std::span<float> masters) const;
  void write(ParameterId id, uint64_t first, std::span<const float> masters);
  /// The weights that the device computes with.
  void read_weights(ParameterId id, uint64_t first, std::span<float> weights) const;
  uint64_t hash() const;
  /// A plane of a parameter, by its place in state_planes(). What is `changed` stays so.
  void visit_plane(ParameterId id, size_t plane, bool changed, const VisitPlane& visit) const;

 private:
  /// Elements of the parameter space in order, those of each run in one place: the planes that are
  /// asked for at least.
  struct Run {
    uint64_t first;
    int64_t count;
    Planes planes;
  };
  template <class Visit>
  void for_each_run(uint64_t first, uint64_t count, StatePlanes asked, bool changed,
                    const Visit& visit) const;
  uint64_t first_element(ParameterId id, uint64_t first, size_t count) const;

  const Layout& layout_;
  const Home& home_;
  const DeviceState& device_state_;
};

}  // namespace ebb
