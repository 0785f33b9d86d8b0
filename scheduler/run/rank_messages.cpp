#include "scheduler/run/rank_messages.h"

#include <algorithm>

#include "device/kernel_arguments.h"

namespace ebb {

RankMessages::RankMessages(Ranks& ranks, const Layout& layout, const Home& home)
    : ranks_(ranks), layout_(layout), home_(home) {
  ranks_.create_signals(signal_of(Message::Norms, ChunkIndex(0)) + 1);
}

uint32_t RankMessages::signal_of(Message message, ChunkIndex chunk) const {
  return static_cast<uint32_t>(message) * layout_.num_chunks() + chunk;
}

void RankMessages::send(const Op& op) {
  const bool of_step_before = op.deferred && !flushes_;
  ranks_.raise(signal_of(op.message, ChunkIndex(op.chunk.index)),
               of_step_before ? step_ - 1 : step_);
}

void RankMessages::receive(const Op& op) {
  const ChunkIndex chunk(op.chunk.index);
  const uint32_t signal = signal_of(op.message, chunk);
  switch (op.message) {
    case Message::Weights:
    case Message::Added:
      return ranks_.wait(owner_of(chunk, ranks_.size()), signal, op.deferred ? step_ - 1 : step_);
    case Message::Sums:
      return wait_for_all(signal);
    case Message::Norms:
      wait_for_all(signal);
      return receive_norms();
  }
}

void RankMessages::wait_for_all(uint32_t signal) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != ranks_.rank()) ranks_.wait(rank, signal, step_);
  }
}

void RankMessages::fetch(const Op& op) {
  const HomePlace from = home_.plane_place(op.plane, ChunkIndex(op.chunk.index), 0);
  const RemotePart part{
      from.rank, from.offset, {home_.fetch_slot(op.slot), layout_.used_bytes(op.chunk)}};
  ranks_.read({&part, 1});
}

/// Copies the partial norms that the other ranks made.
void RankMessages::receive_norms() {
  parts_.clear();
  const uint64_t pieces = layout_.chunk_elements() / kPieceElements;
  for (ChunkIndex c{0}; c < layout_.num_chunks(); ++c) {
    const uint32_t owner = owner_of(c, ranks_.size());
    if (owner == ranks_.rank()) continue;
    const uint64_t first = c * pieces;
    const std::span<double> all = home_.partial_norms();
    const std::span<double> to = all.subspan(first, std::min(pieces, all.size() - first));
    if (home_.is_near(owner)) {
      std::ranges::copy(home_.partial_norms(owner).subspan(first, to.size()), to.begin());
    } else {
      const HomePlace from = home_.partial_norm_place(owner, first);
      parts_.push_back({from.rank, from.offset, std::as_writable_bytes(to)});
    }
  }
  ranks_.read(parts_);
}

}  // namespace ebb
