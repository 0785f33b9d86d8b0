#include "scheduler/run/rank_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "chunk/layer_name.h"
#include "device/kernel_arguments.h"
#include "scheduler/plan/running_sums.h"
#include "scheduler/plan/split_loads.h"

namespace ebb {
namespace {

/// What a rank does before it sends the message. A rank sends no message about sums that it adds
/// itself.
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
    case Message::SumCopied:
    case Message::TotalCopied:
      return "copied the sum of the gradients of " + layers;
    case Message::PartLoaded:
      return "loaded its part of " + layers;
    case Message::Gathered:
      return "gathered the parts of " + layers;
    case Message::Norms:
      break;
  }
  return "finished the gradient norm";
}

}  // namespace

RankMessages::RankMessages(Ranks& ranks, const Layout& layout, const Home& home, const Plan& plan)
    : ranks_(ranks), layout_(layout), home_(home), plan_(plan) {
  for (const Op& op : plan.ops) num_split_loads_ += is_load_part(op);
  ranks_.create_signals(num_signals());
  ranks_.explain_waits([this] { return first_missing(); });
}

RankMessages::~RankMessages() { ranks_.explain_waits({}); }

uint32_t RankMessages::signal_of(const Op& op) const {
  const uint32_t num_chunks = layout_.num_chunks();
  if (op.split == kNone) {
    const uint32_t of_chunk = op.message == Message::Norms ? 0 : op.chunk.index;
    return static_cast<uint32_t>(op.message) * num_chunks + of_chunk;
  }
  const uint32_t norms = static_cast<uint32_t>(Message::Norms) * num_chunks;
  const uint32_t of_slots = op.message == Message::Gathered ? kPartSlots : 0;
  return norms + 1 + of_slots + op.split % kPartSlots;
}

uint32_t RankMessages::num_signals() const {
  return static_cast<uint32_t>(Message::Norms) * layout_.num_chunks() + 1 + 2 * kPartSlots;
}

uint32_t RankMessages::value_of(const Op& op) const {
  if (op.split != kNone) {
    const uint32_t uses_of_slot = (num_split_loads_ + kPartSlots - 1) / kPartSlots;
    return (step_ - 1) * uses_of_slot + op.split / kPartSlots + 1;
  }
  return op.deferred && !flushes_ ? step_ - 1 : step_;
}

void RankMessages::send(const Op& op) {
  const bool is_near = op.split != kNone || op.message == Message::Copied;
  if (is_near) return ranks_.raise_near(signal_of(op), value_of(op));
  ranks_.raise(signal_of(op), value_of(op));
}

void RankMessages::receive(const Op& op) {
  const uint32_t signal = signal_of(op);
  if (op.sender != kNone) {
    return ranks_.wait(op.sender, signal, value_of(op));
  }
  const bool only_near = is_from_machine(op, plan_.division);
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank() || (only_near && !home_.is_near(rank))) continue;
    ranks_.wait(rank, signal, value_of(op));
  }
  if (op.message == Message::Norms) receive_norms();
}

bool RankMessages::sends(uint32_t rank, const Op& op) const {
  if (op.kind == OpKind::Receive && op.sender != kNone) return rank == op.sender;
  Division of_rank = plan_.division;
  of_rank.place.rank = rank;
  const bool adds = adder_of(of_rank, ChunkIndex(op.chunk.index)) == rank;
  switch (op.message) {
    case Message::Sums:
      return !adds;
    case Message::Added:
      return adds;
    case Message::Norms:
      return true;
    case Message::PartLoaded:
    case Message::Gathered:
      return home_.is_near(rank);
    default:  // this rank
      return op.kind == OpKind::Send && rank == plan_.division.place.rank;
  }
}

std::string RankMessages::first_missing() const {
  if (step_ == 0) return {};
  bool is_backward = false;  // the gradients of a chunk are finished
  for (const Op& op : plan_.ops) {
    if (op.kind != OpKind::Send && op.kind != OpKind::Receive) continue;
    const uint32_t value = value_of(op);
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!sends(rank, op) || ranks_.value(rank, signal_of(op)) >= value) continue;
      const std::string layers = layers_of(layout_, ChunkIndex(op.chunk.index));
      return fmt::format("rank {} has not {}", rank, text_of(op.message, is_backward, layers));
    }
    is_backward |= op.message == Message::Added;
  }
  return {};
}

RemotePart RankMessages::part_to_fetch(const Op& op) const {
  const ChunkIndex chunk(op.chunk.index);
  if (op.kind == OpKind::FetchSum) {
    const HomePlace from =
        home_.running_sum_place(op.sender, running_slot_of(chunk, plan_.division.place));
    auto* const to = reinterpret_cast<std::byte*>(home_.running_sum(op.slot));
    return {from.rank, from.offset, {to, layout_.running_sum_bytes(chunk)}};
  }
  const HomePlace from = home_.plane_place(op.plane, chunk, 0);
  std::byte* const to = op.slot != kNone ? home_.fetch_slot(op.slot) : home_.copied_weights(chunk);
  const size_t first =
      op.split == kNone
          ? 0
          : part_of_load(layout_.used_bytes(op.chunk), plan_.division.place, ranks_.rank()).first;
  return {from.rank, from.offset + first, {to, bytes_of_move(op, layout_, plan_.division)}};
}

void RankMessages::fetch(const Op& op) {
  const RemotePart part = part_to_fetch(op);
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
