// One number for the whole training state: equal exactly when every value is, wherever and however
// it is stored.
//
// XXH64 (seed 0) over, for each parameter in call order: its n fp32 masters, then its n momenta,
// then its n variances, each as 4 bytes, least significant first. 16-bit weights are
// not hashed beside the masters that they follow from.
//
// Thread-safety: one thread at a time. Nothing allocates after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cpu_adam/adamw.h"

struct XXH64_state_s;

namespace ebb {

class StateHash {
 public:
  StateHash();
  ~StateHash();
  StateHash(StateHash&&) noexcept;
  StateHash& operator=(StateHash&&) noexcept;

  /// The next parameter in call order.
  void add_parameter(const Planes& planes, int64_t n);
  /// The same in parts, where its planes are not in one place: all masters, then all momenta, then
  /// all variances, each in element order; where they are cut does not matter.
  void add_masters(const Planes& planes, int64_t n);
  void add_values(const float* values, int64_t n);
  /// Starts again from nothing.
  void reset();

  /// The hash of what was added so far; more may follow.
  uint64_t value() const;
  /// value() as 16 lower-case hex digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH64_state_s* state) const;
  };
  std::unique_ptr<XXH64_state_s, Free> state_;
};

}  // namespace ebb
