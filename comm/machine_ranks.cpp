#include "comm/machine_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "comm/machine_link.h"
#include "comm/meet_ranks.h"
#include "comm/mpi_library.h"
#include "comm/process_rank.h"
#include "device/errors.h"
#include "system/clock.h"

namespace ebb {
namespace {

constexpr size_t kSlotsOfRead = 4;  // so several threads can read at the same time

class MachineRanks final : public ProcessRank {
 public:
  MachineRanks(std::shared_ptr<MachineLink> link, const std::shared_ptr<RankMemory>& memory,
               uint32_t rank, const ProcessRanksOptions& options)
      : ProcessRank(memory, rank, options),
        link_(std::move(link)),
        pace_(options.network_bytes_per_s) {
    link_->serve(memory);
  }
  // Ranks of this machine that wait for this one see at once that it has left.
  ~MachineRanks() override {
    block().slot(rank()).state.raise(static_cast<uint32_t>(RankState::Left));
  }

  // The links of all ranks know the memory before a rank reads it.
  std::vector<std::byte*> share(size_t bytes) override {
    std::vector<std::byte*> memory = ProcessRank::share(bytes);
    link_->set_shared({memory[rank()], bytes});
    collect(Operation::Share, {}, {});
    return memory;
  }
  void read(std::span<const RemotePart> parts) override;
  void create_signals(uint32_t count) override {
    ProcessRank::create_signals(count);
    link_->set_signals(signals());
    collect(Operation::CreateSignals, {}, {});
  }
  void raise(uint32_t signal, uint32_t value) override {
    ProcessRank::raise(signal, value);
    link_->raise(signal, value);
  }
  void raise_near(uint32_t signal, uint32_t value) override { ProcessRank::raise(signal, value); }

 private:
  void publish(const RoundEntry& entry, size_t bytes) override { link_->publish(entry, bytes); }

  /// A request whose answer comes to a slot.
  struct Requested {
    ReadSlot* slot;
    uint32_t of;
    std::span<std::byte> into;
    double at_s;
  };
  ReadSlot* take_slot(std::deque<Requested>& requested, uint32_t of);
  void take_answer(std::deque<Requested>& requested);

  const std::shared_ptr<MachineLink> link_;
  NetworkPace pace_;  // of what this rank receives
};

// If a wait fails, the slots are not given back: answers may still come.
void MachineRanks::read(std::span<const RemotePart> parts) {
  std::deque<Requested> requested;
  for (const RemotePart& part : parts) {
    if (is_near(part.of)) {
      ProcessRank::read({&part, 1});
      continue;
    }
    for (size_t done = 0; done < part.into.size();) {
      const size_t n = std::min(MachineLink::kReadBytes, part.into.size() - done);
      ReadSlot* const slot = take_slot(requested, part.of);
      link_->request(*slot, part.of, part.offset + done, n);
      requested.push_back({slot, part.of, part.into.subspan(done, n), steady_now_s()});
      done += n;
    }
  }
  while (!requested.empty()) take_answer(requested);
}

ReadSlot* MachineRanks::take_slot(std::deque<Requested>& requested, uint32_t of) {
  for (;;) {
    if (requested.size() >= kSlotsOfRead) take_answer(requested);
    const uint32_t seen = link_->given_back().load();
    if (ReadSlot* const slot = link_->take_slot()) return slot;
    if (requested.empty()) {
      wait_for_bytes(link_->given_back(), seen + 1, of, "sent memory that other threads read");
    } else {
      take_answer(requested);
    }
  }
}

void MachineRanks::take_answer(std::deque<Requested>& requested) {
  const Requested first = requested.front();
  requested.pop_front();
  wait_for_bytes(first.slot->arrived, first.slot->num_requests, first.of, "sent its memory");
  if (pace_.is_emulated()) sleep_until(pace_.passes_at(first.into.size(), first.at_s));
  std::memcpy(first.into.data(), first.slot->data.get(), first.into.size());
  link_->give_back(first.slot);
}

}  // namespace

uint32_t checked_ranks_per_machine(std::span<const uint32_t> machines) {
  const auto size = static_cast<uint32_t>(machines.size());
  const auto count = static_cast<uint32_t>(std::count(machines.begin(), machines.end(), 0));
  for (uint32_t r = 0; r < size; ++r) {
    if (size % count == 0 && machines[r] == r / count * count) continue;
    throw ConfigError(fmt::format(
        "ranks are numbered machine by machine, the same number on each: of {} ranks, {} are on "
        "the machine of rank 0, and rank {} is on that of rank {}; try the option 'map-by slot' of "
        "mpirun, or 'distribution=block' of srun, with the same number of processes on each "
        "machine",
        size, count, r, machines[r]));
  }
  return count;
}

std::unique_ptr<Ranks> join_machines(const LaunchedRank& launched, uint32_t ranks_per_machine,
                                     const ProcessRanksOptions& options) {
  const auto link =
      MachineLink::start(load_mpi_library(), options.timeout_s, options.network_bytes_per_s);
  const MpiPlace& place = link->place();
  if (place.rank != launched.rank || place.size != launched.size) {
    throw ConfigError(fmt::format(
        "{} started rank {} of {}, but for MPI this process is rank {} of {}: libebb_mpi.so was "
        "built with another MPI than that of {} (for srun, try its option 'mpi=pmix')",
        launched.launcher, launched.rank, launched.size, place.rank, place.size,
        launched.launcher));
  }
  const uint32_t per_machine =
      ranks_per_machine != 0 ? ranks_per_machine : checked_ranks_per_machine(place.machines);
  if (place.size % per_machine != 0) {
    throw ConfigError(fmt::format("{} ranks are not {} on each machine", place.size, per_machine));
  }
  const std::string run =
      fmt::format("mpi-{:x}-{}", place.run, place.rank / per_machine * per_machine);
  return meet_ranks_of_machine(
      run, place.rank, place.size, per_machine, options.timeout_s, [&](int memory) {
        return std::make_unique<MachineRanks>(link, std::make_shared<RankMemory>(memory),
                                              place.rank, options);
      });
}

}  // namespace ebb
