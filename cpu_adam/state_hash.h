// A hash of the whole training state. It depends only on the values of the state, not on where or
// in which type they are stored.
//
// The hash is XXH64 (seed 0) over the parameters in order of first use: for each, its n fp32
// masters, least significant byte first, then each plane that does not hold the masters
// (device/planes.h), in the order of the table. For AdamW these are n momenta, then n variances.
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

  /// Adds the next parameter, in order of first use.
  void add_parameter(const Planes& planes, int64_t n);
  /// Add a parameter in parts: all its masters, then each other plane, in element order. The
  /// division into parts does not change the hash.
  void add_masters(const Planes& planes, int64_t n);
  void add_bytes(std::span<const std::byte> bytes);
  /// Starts a new hash.
  void reset();

  /// The hash of all values added so far. More values may be added afterwards.
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
