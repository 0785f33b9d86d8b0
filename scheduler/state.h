// The training state at home, seen as parameters: initial values, reading and writing masters, the
// state's hash. Not thread-safe; nothing here runs during a step except planes().
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "chunk/home.h"
#include "chunk/layout.h"
#include "cpu_adam/adamw.h"
#include "device/host/parallel.h"
#include "scheduler/parameters.h"

namespace ebb {

/// The optimizer's planes as the chunk room wants them.
std::vector<PlaneSpec> plane_specs(DType weight_type);

/// Initial values of elements [first, first + out.size()) of a parameter, from the seed: the same
/// for every layout, and however they are cut. REQUIRES: first is a multiple of 4.
void initial_values(const Parameter& parameter, uint64_t seed, uint64_t first,
                    std::span<float> out);
/// The same for all elements, in pieces that `take` is given, by several threads.
using TakeInitial =
    std::function<void(ParameterId id, uint64_t first, std::span<const float> values)>;
void initialise(const Parameters& parameters, uint64_t seed, ThreadTeam& team,
                const TakeInitial& take);

/// The parameter of this name. Throws ConfigError where there is none.
ParameterId parameter_named(const Layout& layout, std::string_view name);

class State {
 public:
  State(const Layout& layout, const Home& home) : layout_(layout), home_(home) {}

  /// The planes from one element of the parameter space on, without a gradient.
  Planes planes(uint64_t first_element) const;
  /// Masters from the seed, by parameter name and element: the same for every layout. Moments are
  /// zero already.
  void initialise(const Parameters& parameters, uint64_t seed, ThreadTeam& team);
  /// Elements [first, first + masters.size()) of a parameter. REQUIRES: they exist.
  void read(ParameterId id, uint64_t first, std::span<float> masters) const;
  void write(ParameterId id, uint64_t first, std::span<const float> masters);
  uint64_t hash() const;
  /// Where a parameter's planes lie, in the order of home_planes().
  std::vector<std::span<std::byte>> plane_bytes(ParameterId id) const;

 private:
  Planes planes_of(ParameterId id, uint64_t first, size_t count) const;

  const Layout& layout_;
  const Home& home_;
};

}  // namespace ebb
