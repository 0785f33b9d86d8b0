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

void StateHash::add_bytes(std::span<const std::byte> bytes) {
  XXH64_update(state_.get(), bytes.data(), bytes.size());
}

void StateHash::add_masters(const Planes& planes, int64_t n) {
  std::array<float, 2048> masters;
  for (int64_t first = 0; first < n; first += std::ssize(masters)) {
    const auto count = static_cast<size_t>(std::min(std::ssize(masters), n - first));
    const std::span<float> part = std::span(masters).first(count);
    read_masters(planes.from(first), part);
    add_bytes(std::as_bytes(part));
  }
}

void StateHash::add_parameter(const Planes& planes, int64_t n) {
  EBB_CHECK(n >= 0, "a parameter of negative length");
  if (n > 0) check_planes(planes, all_planes(planes.weight_dtype));
  add_masters(planes, n);
  const std::span<const PlaneInfo> infos = state_planes(planes.weight_dtype);
  for (size_t i = 0; i < infos.size(); ++i) {
    if (!infos[i].holds_master) add_bytes({planes[i], infos[i].bytes(static_cast<uint64_t>(n))});
  }
}

uint64_t StateHash::value() const { return XXH64_digest(state_.get()); }

std::string StateHash::hex() const { return fmt::format("{:016x}", value()); }

}  // namespace ebb
