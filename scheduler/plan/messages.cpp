#include "scheduler/plan/messages.h"

namespace ebb {
namespace {

uint64_t key_of(const Op& op) {
  const auto message = static_cast<uint64_t>(op.message);
  return (static_cast<uint64_t>(op.chunk.index) << 8) | (message << 1) | (op.deferred ? 1 : 0);
}

}  // namespace

Sends::Sends(std::span<const Plan* const> plans)
    : plans_(plans.begin(), plans.end()), sends_(plans.size()) {
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    for (OpIndex i{0}; i < plans[rank]->ops.size(); ++i) {
      const Op& op = plans[rank]->ops[i];
      if (op.kind == OpKind::Send) sends_[rank].emplace(key_of(op), i);
    }
  }
}

OpIndex Sends::find(uint32_t rank, const Op& receive) const {
  const auto found = sends_[rank].find(key_of(receive));
  return found == sends_[rank].end() ? OpIndex(kNone) : found->second;
}

}  // namespace ebb
