// What the threads of a rank call, and how the thread of the link begins and ends.
// comm/link_thread.cpp has what it does between.

#include "comm/machine_link.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "comm/ranks.h"
#include "system/clock.h"
#include "system/quiet_thread.h"

namespace ebb {
namespace {

constexpr double kFinishLimit_s = 3;  // for the end of MPI, also after a failure

/// Waits until the word is 1. Returns whether it is.
bool is_set_within(const FutexWord& word, double limit_s) {
  const double until_s = steady_now_s() + limit_s;
  for (double left_s = limit_s; word.load() == 0 && left_s > 0; left_s = until_s - steady_now_s()) {
    word.sleep(0, left_s);
  }
  return word.load() != 0;
}

}  // namespace

MachineLink::MachineLink(const MpiFunctions& mpi, double network_bytes_per_s)
    : mpi_(mpi), slots_(kReadSlots), pace_(network_bytes_per_s) {
  for (ReadSlot& slot : slots_) {
    slot.data = std::make_unique_for_overwrite<std::byte[]>(kReadBytes);
    free_slots_.push_back(&slot);
  }
}

// The thread owns the link, too. When the pointer that is returned is destroyed, the link ends.
std::shared_ptr<MachineLink> MachineLink::start(const MpiFunctions& mpi, double timeout_s,
                                                double network_bytes_per_s) {
  const auto owned = std::make_shared<MachineLink>(mpi, network_bytes_per_s);
  const std::shared_ptr<MachineLink> link(owned.get(), [owned](MachineLink* l) { l->end(); });
  owned->thread_ = start_quiet_thread([owned] { owned->run(); });
  if (!is_set_within(link->started_, timeout_s)) {
    throw RankLost(fmt::format(
        "MPI has not started for {:.3g} s: at least one rank of the run has not come", timeout_s));
  }
  if (!link->error_.empty()) throw Error(link->error_);
  return link;
}

void MachineLink::run() {
  try {
    start_mpi();
    started_.raise(1);
    while (begin_.load() == 0) begin_.sleep(0, 1);
    if (memory_ != nullptr) serve_until_end();
    if (may_finish_) mpi_.finish();
  } catch (const std::exception& error) {
    if (memory_ != nullptr) {
      announce_failure(block(), place_.rank, fmt::format("rank {}: {}", place_.rank, error.what()));
    }
    error_ = error.what();
    started_.raise(1);
  }
  ended_.raise(1);
}

void MachineLink::serve(std::shared_ptr<RankMemory> memory) {
  memory_ = std::move(memory);
  begin_.raise(1);
}

/// Called by the deleter of the pointer that start() returns.
void MachineLink::end() {
  if (memory_ != nullptr) {
    is_leaving_ = true;
    // While the run has not failed, the watches of all ranks see that the others work.
    while (ended_.load() == 0 && block().failed.load() == 0) {
      if (is_set_within(ended_, 0.05) || have_far_ranks_left()) break;
    }
  } else {
    begin_.raise(1);
  }
  const bool has_ended = is_set_within(ended_, started_.load() == 0 ? 0 : kFinishLimit_s);
  has_ended ? thread_.join() : thread_.detach();
}

void MachineLink::queue(uint32_t to, const LinkHeader& header, std::span<const std::byte> payload,
                        ReadSlot* slot) {
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  const std::lock_guard lock(mutex_);
  queue_.push_back({to, std::move(bytes), slot});
  queued_.raise(queued_.load() + 1);
}

void MachineLink::publish(const RoundEntry& entry, size_t bytes) {
  queue(kMpiAnyRank,
        {.kind = LinkHeader::Kind::Entry,
         .number = ++num_published_,
         .value = entry.operation,
         .bytes = entry.bytes},
        std::span(entry.piece, bytes));
}

void MachineLink::raise(uint32_t signal, uint32_t value) {
  queue(kMpiAnyRank, {.kind = LinkHeader::Kind::Signal, .number = signal, .value = value});
}

void MachineLink::set_signals(std::span<FutexWord* const> signals) {
  const std::lock_guard lock(mutex_);
  signals_.assign(signals.begin(), signals.end());
}

void MachineLink::set_shared(std::span<const std::byte> memory) {
  const std::lock_guard lock(mutex_);
  shared_ = memory;
}

ReadSlot* MachineLink::take_slot() {
  const std::lock_guard lock(mutex_);
  if (free_slots_.empty()) return nullptr;
  ReadSlot* const taken = free_slots_.back();
  free_slots_.pop_back();
  return taken;
}

void MachineLink::give_back(ReadSlot* slot) {
  const std::lock_guard lock(mutex_);
  free_slots_.push_back(slot);
  given_back_.raise(given_back_.load() + 1);
}

void MachineLink::request(ReadSlot& slot, uint32_t of, uint64_t offset, size_t bytes) {
  ++slot.num_requests;
  queue(of,
        {.kind = LinkHeader::Kind::Request,
         .number = static_cast<uint32_t>(&slot - slots_.data()),
         .bytes = bytes,
         .offset = offset},
        {}, &slot);
}

}  // namespace ebb
