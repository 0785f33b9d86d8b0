#include "scheduler/plan/op.h"

#include "device/errors.h"

namespace ebb {

std::string_view name_of(OpKind kind) {
  static constexpr std::string_view kNames[] = {
      "call",    "round",      "update",    "speculate",   "store partial norms",
      "norm",    "add groups", "fetch sum", "round total", "send",
      "receive", "move",       "drop"};
  return kNames[static_cast<int>(kind)];
}

std::string_view name_of(Message message) {
  static constexpr std::string_view kNames[] = {"weights", "copied",      "sums",
                                                "added",   "sum copied",  "total copied",
                                                "norms",   "part loaded", "gathered"};
  return kNames[static_cast<int>(message)];
}

std::string_view name_of(const Op& op) {
  const MoveInfo* const move = op.kind == OpKind::Move ? find_move(op.from, op.to) : nullptr;
  return move != nullptr ? move->name : name_of(op.kind);
}

const MoveInfo* find_move(Tier from, Tier to) {
  for (const MoveInfo& move : kMoves) {
    if (move.from == from && move.to == to) return &move;
  }
  return nullptr;
}

Op make_move(ChunkId chunk, Tier from, Tier to, BlockIndex block) {
  const MoveInfo* const move = find_move(from, to);
  EBB_CHECK(move != nullptr, "there is no such move");
  return {.kind = OpKind::Move,
          .stream = move->stream,
          .from = from,
          .to = to,
          .chunk = chunk,
          .block = block};
}

Op make_fetch(ChunkId chunk, uint32_t from_rank) {
  Op op = make_move(chunk, Tier::Peer, Tier::Host);
  op.sender = from_rank;
  return op;
}

}  // namespace ebb
