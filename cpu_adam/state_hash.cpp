#include "cpu_adam/state_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <new>

#include "device/errors.h"

namespace ebb {

static_assert(std::endian::native == std::endian::little, "the hash is over little-endian bytes");

StateHash::StateHash() : state_(XXH64_createState()) {
  if (!state_) throw std::bad_alloc();
  reset();
}
StateHash::~StateHash() = default;
StateHash::StateHash(StateHash&&) noexcept = default;
StateHash& StateHash::operator=(StateHash&&) noexcept = default;

void StateHash::Free::operator()(XXH64_state_s* state) const { XXH64_freeState(state); }

void StateHash::reset() { XXH64_reset(state_.get(), 0); }

void StateHash::add_values(const float* values, int64_t n) {
  XXH64_update(state_.get(), values, static_cast<size_t>(n) * sizeof(float));
}

void StateHash::add_masters(const Planes& planes, int64_t n) {
  std::array<float, 2048> masters;
  for (int64_t first = 0; first < n; first += std::ssize(masters)) {
    const int64_t count = std::min(std::ssize(masters), n - first);
    read_masters(planes.from(first), {masters.data(), static_cast<size_t>(count)});
    add_values(masters.data(), count);
  }
}

void StateHash::add_parameter(const Planes& planes, int64_t n) {
  EBB_CHECK(n == 0 || (n > 0 && planes.momentum && planes.variance),
            "a parameter of negative length, or without momentum or variance");
  add_masters(planes, n);
  add_values(planes.momentum, n);
  add_values(planes.variance, n);
}

uint64_t StateHash::value() const { return XXH64_digest(state_.get()); }

std::string StateHash::hex() const { return fmt::format("{:016x}", value()); }

}  // namespace ebb
