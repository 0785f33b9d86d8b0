#include "scheduler/run/rank_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "chunk/layer_name.h"
#include "device/kernel_arguments.h"

namespace ebb {
namespace {

/// What a rank does before it sends the message. A rank sends no message about its own sums of its
/// own chunks.
std::string text_of(Message message, bool is_backward, const std::string& layers) {
  const char* const forward = is_backward ? "" : "the forward and ";
  switch (message) {
    case Message::Weights:
      return "updated " + layers;
    case Message::Copied:
      return "fetched " + layers;
    case Message::Sums:
      return fmt::format("finished {}the backward of {}", forward, layers);
    case Message::Added:
      return fmt::format("finished {}the backward of {}, or the sum of its gradients", forward,
                         layers);
    case Message::Norms:
      break;
  }
  return "finished the gradient norm";
}

}  // namespace

RankMessages::RankMessages(Ranks& ranks, const Layout& layout, const Home& home, const Plan& plan)
    : ranks_(ranks), layout_(layout), home_(home), plan_(plan) {
  ranks_.create_signals(signal_of(Message::Norms, ChunkIndex(0)) + 1);
  ranks_.explain_waits([this] { return first_missing(); });
}

RankMessages::~RankMessages() { ranks_.explain_waits({}); }

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
    case Message::Copied:
      return ranks_.wait(plan_.division.place.fetcher_of(chunk), signal, step_);
    case Message::Sums:
      return wait_for_all(signal);
    case Message::Norms:
      wait_for_all(signal);
      return receive_norms();
  }
}

bool RankMessages::sends(uint32_t rank, const Op& op) const {
  const ChunkIndex chunk(op.chunk.index);
  if (op.message == Message::Copied) return rank == plan_.division.place.fetcher_of(chunk);
  const bool is_owner = rank == owner_of(chunk, ranks_.size());
  return op.message == Message::Norms || is_owner == (op.message != Message::Sums);
}

std::string RankMessages::first_missing() const {
  if (step_ == 0) return {};
  bool is_backward = false;  // the gradients of a chunk are finished
  for (const Op& op : plan_.ops) {
    if (op.kind != OpKind::Send && op.kind != OpKind::Receive) continue;
    const ChunkIndex chunk(op.chunk.index);
    const uint32_t value = op.deferred && !flushes_ ? step_ - 1 : step_;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!sends(rank, op) || ranks_.value(rank, signal_of(op.message, chunk)) >= value) continue;
      return fmt::format("rank {} has not {}", rank,
                         text_of(op.message, is_backward, layers_of(layout_, chunk)));
    }
    is_backward |= op.message == Message::Added;
  }
  return {};
}

void RankMessages::wait_for_all(uint32_t signal) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != ranks_.rank()) ranks_.wait(rank, signal, step_);
  }
}

void RankMessages::fetch(const Op& op) {
  const ChunkIndex chunk(op.chunk.index);
  const HomePlace from = home_.plane_place(op.plane, chunk, 0);
  std::byte* const to = op.slot != kNone ? home_.fetch_slot(op.slot) : home_.copied_weights(chunk);
  const RemotePart part{from.rank, from.offset, {to, layout_.used_bytes(op.chunk)}};
  ranks_.read({&part, 1});
  ranks_.progress();
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
