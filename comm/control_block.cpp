#include "comm/control_block.h"

#include <algorithm>
#include <cstring>

#include "comm/ranks.h"

namespace ebb {

void announce_failure(ControlBlock& block, uint32_t slot, std::string_view text) noexcept {
  uint32_t none = 0;
  if (block.failed.load(std::memory_order_acquire) != none) return;
  if (block.slot(slot).announced.exchange(1, std::memory_order_acq_rel) != 0) return;
  char* failure = block.slot(slot).failure;
  const size_t n = std::min(text.size(), kFailureBytes - 1);
  std::memcpy(failure, text.data(), n);
  failure[n] = 0;
  block.failed.compare_exchange_strong(none, slot + 1, std::memory_order_acq_rel);
}

void throw_if_failed(ControlBlock& block) {
  const uint32_t failed = block.failed.load(std::memory_order_acquire);
  if (failed != 0) throw RankLost(block.slot(failed - 1).failure);
}

}  // namespace ebb
