#include "scheduler/plan/sends.h"

namespace ebb {
namespace {

uint64_t key_of(const Op& op) {
  const auto message = static_cast<uint64_t>(op.message);
  const uint32_t about = op.split != kNone ? op.split : op.chunk.index;
  return (static_cast<uint64_t>(about) << 8) | (message << 1) | (op.deferred ? 1 : 0);
}

}  // namespace

Sends::Sends(std::span<const Plan* const> plans)
    : plans_(plans.begin(), plans.end()), sends_(plans.size()), last_added_(plans.size()) {
  for (size_t place = 0; place < plans.size(); ++place) {
    for (OpIndex i{0}; i < plans[place]->ops.size(); ++i) {
      const Op& op = plans[place]->ops[i];
      if (op.kind != OpKind::Send) continue;
      sends_[place].emplace(key_of(op), i);
      const bool is_chained = plans[place]->division.chains_sums;
      if (is_chained && op.message == Message::Added) last_added_[place] = i;
    }
  }
  if (plans.empty()) return;
  const RankPlace& first = plans[0]->division.place;
  num_ranks_ = first.num_ranks;
  if (plans.size() < num_ranks_) first_ = first.rank;
}

bool Sends::is_far(uint32_t a, uint32_t b) const {
  const RankPlace& place = plans_[0]->division.place;
  return place.machine_of(first_ + a) != place.machine_of(first_ + b);
}

OpIndex Sends::find(uint32_t place, const Op& receive) const {
  const auto found = sends_[place].find(key_of(receive));
  return found == sends_[place].end() ? OpIndex(kNone) : found->second;
}

OpIndex Sends::find_in_same_row(uint32_t place, Op receive) const {
  const uint32_t row = receive.chunk.index / num_ranks_;
  for (int64_t c = int64_t{row} * num_ranks_ + first_ + place; c >= 0; c -= num_ranks_) {
    receive.chunk.index = static_cast<uint32_t>(c);
    const OpIndex send = find(place, receive);
    if (send != kNone) return send;
  }
  return kNone;
}

OpIndex Sends::find_copied(uint32_t place, Op receive) const {
  const RankPlace& receiver = plans_[place]->division.place;
  const uint32_t of_machine = receiver.ranks_per_machine();
  receive.chunk.index = receive.chunk.index / of_machine * of_machine + receiver.rank % of_machine;
  return find(place, receive);
}

OpIndex Sends::find_addition_before(uint32_t place, const Op& receive) const {
  Op added{.chunk = receive.chunk, .message = Message::Added};
  const OpIndex own = find(place, added);
  added.chunk.index += plans_[place]->division.place.ranks_per_machine();
  const OpIndex before = find(place, added);
  // Elsewhere the rank might wait for itself.
  return before != kNone && own != kNone && before < own ? before : OpIndex(kNone);
}

// A backward comes to the chunks in falling order.
OpIndex Sends::find_next_chunk(uint32_t place, Op receive, const Op& sums) const {
  const uint32_t c = receive.chunk.index, row = c / num_ranks_;
  receive.chunk.index = row * num_ranks_ + first_ + place;
  if (receive.chunk.index <= c) receive.chunk.index += num_ranks_;
  const OpIndex send = find(place, receive);
  OpIndex own = find(place, sums);
  if (own == kNone) own = find(place, {.chunk = sums.chunk, .message = Message::Added});
  // Elsewhere the rank might wait for itself.
  return send != kNone && send < own ? send : OpIndex(kNone);
}

}  // namespace ebb
