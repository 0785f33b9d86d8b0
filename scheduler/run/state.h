// The training state, seen by parameter: initial values, reads and writes of masters and planes,
// and the hash of the state. The state of a chunk is in host memory, or on a device that updates
// the chunk (scheduler/run/device_state.h). If the state is in host memory, the device computes
// with a copy of the weights. This copy is not part of the state. With several ranks, each reads
// the whole state, also that of other machines, and writes the chunks that it owns.
//
// Thread-safety: several threads may read at once. A chunk must not be written or updated while
// another thread accesses the same chunk.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/parameters.h"
#include "chunk/home.h"
#include "chunk/layout.h"
#include "comm/ranks.h"
#include "cpu_adam/adamw.h"
#include "device/errors.h"
#include "device/planes.h"
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
      throw LogicError("weights must have a float type");
  }
}

/// Computes the initial values of elements [first, first + out.size()) of a parameter. The value of
/// an element depends on the seed, the parameter's name and `init`, and the index of the element.
/// It does not depend on the layout or on the range. REQUIRES: `first` is a multiple of 4.
void initial_values(const Parameter& parameter, uint64_t seed, uint64_t first,
                    std::span<float> out);
/// Computes the initial values of elements [first, first + count) of a parameter and passes them to
/// `take` in parts. Several threads call `take` at once, for different parts. REQUIRES: `first` is
/// a multiple of 4.
using TakeInitial = std::function<void(uint64_t first, std::span<const float> values)>;
void initialise(const Parameter& parameter, uint64_t seed, uint64_t first, uint64_t count,
                ThreadTeam& team, const TakeInitial& take);

/// The parameter of this name. Throws ConfigError if there is none.
ParameterId parameter_named(const Layout& layout, std::string_view name);

/// Receives the next bytes of one plane of a parameter, in the type of the plane. All calls
/// together cover the elements that were asked for, from the first to the last.
using VisitPlane = std::function<void(std::span<std::byte>)>;

class State {
 public:
  /// `ranks`: null if there is one rank.
  State(const Layout& layout, const Home& home, const DeviceState& device_state, Ranks* ranks)
      : layout_(layout),
        home_(home),
        device_state_(device_state),
        ranks_(ranks),
        masters_(master_planes(layout.weight_type())) {}

  /// The planes of a chunk in host memory; the gradient is null. REQUIRES: the chunk's state is in
  /// host memory.
  Planes home_planes(ChunkIndex chunk) const;
  /// Sets all masters to their initial values (initial_values). The other planes are zero already.
  void initialise(const Parameters& parameters, uint64_t seed, ThreadTeam& team);
  /// Read and write the fp32 masters of elements [first, first + masters.size()) of a parameter.
  /// REQUIRES: the elements exist.
  void read(ParameterId id, uint64_t first, std::span<float> masters) const;
  void write(ParameterId id, uint64_t first, std::span<const float> masters);
  /// Reads elements [first, first + weights.size()) of the weights that the device computes with.
  /// They have the precision of the weight type. REQUIRES: the elements exist.
  void read_weights(ParameterId id, uint64_t first, std::span<float> weights) const;
  /// The XXH64 hash of the masters and of the other planes of all parameters, in call order
  /// (cpu_adam/state_hash.h).
  uint64_t hash() const;
  /// Passes one plane of some elements of a parameter to `visit`, part by part. `plane` is an index
  /// of state_planes(). With `changed`, the changes that `visit` makes are kept, except in chunks
  /// that another rank owns. `elements` are counted from the first one of the parameter. REQUIRES:
  /// they exist.
  void visit_plane(ParameterId id, size_t plane, ElementRange elements, bool changed,
                   const VisitPlane& visit) const;

 private:
  /// A range of the parameter space whose planes are in one piece of memory. At least the planes
  /// that were asked for are set.
  struct Run {
    uint64_t first;
    int64_t count;
    Planes planes;            // not set if `is_foreign`
    bool is_foreign = false;  // the range is to be changed, and only its owner may do that
  };
  template <class Visit>
  void for_each_run(uint64_t first, uint64_t count, PlaneSet asked, bool changed,
                    const Visit& visit) const;
  template <class Visit>
  void visit_far(ChunkIndex chunk, uint64_t first, uint64_t count, PlaneSet asked,
                 const Visit& visit) const;
  uint64_t first_element(ParameterId id, uint64_t first, size_t count) const;

  const Layout& layout_;
  const Home& home_;
  const DeviceState& device_state_;
  Ranks* const ranks_;
  const PlaneSet masters_;  // the planes that hold the masters
};

}  // namespace ebb
