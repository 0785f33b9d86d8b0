#include "comm/local_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "device/errors.h"
#include "system/clock.h"

namespace ebb {
namespace {

constexpr double kLookEvery_s = 0.05;  // how soon a waiting thread sees a failure
// Instead of the number of bytes: this rank called exchange() with a wrong output.
constexpr uint64_t kWrongOutput = ~uint64_t{0};

constexpr const char* kOperationNames[] = {"exchange", "share", "create_signals"};

std::string call_text(const RoundEntry& entry) {
  const char* name = kOperationNames[std::min<size_t>(entry.operation, 2)];
  if (entry.bytes == kWrongOutput) return fmt::format("{}() with an output of a wrong size", name);
  return fmt::format("{}() with {} bytes", name, entry.bytes);
}

}  // namespace

void LocalRanks::exchange(std::span<const std::byte> mine, std::span<std::byte> all) {
  collect(Operation::Exchange, mine, all);
}

void LocalRanks::collect(Operation operation, std::span<const std::byte> mine,
                         std::span<std::byte> all) {
  throw_if_failed(block_);
  const bool fits = all.size() == mine.size() * size();
  size_t done = 0;
  do {
    const size_t n = std::min(kExchangePieceBytes, mine.size() - done);
    const uint32_t parity = rounds_ % 2;
    RankSlot& own = block_.slot(rank_);
    own.entries[parity].operation = static_cast<uint32_t>(operation);
    own.entries[parity].bytes = fits ? mine.size() : kWrongOutput;
    if (n > 0) std::memcpy(own.entries[parity].piece, mine.data() + done, n);
    publish(own.entries[parity], n);
    own.arrived.raise(++rounds_);
    progress();
    for (uint32_t r = 0; r < size(); ++r) {
      wait_for(block_.slot(r).arrived, rounds_, r, [&] {
        return fmt::format("called {}() (collective call {})",
                           kOperationNames[static_cast<uint32_t>(operation)], rounds_);
      });
    }
    check_entries(parity);
    for (uint32_t r = 0; n > 0 && r < size(); ++r) {
      std::memcpy(all.data() + r * mine.size() + done, block_.slot(r).entries[parity].piece, n);
    }
    done += n;
  } while (done < mine.size());
}

// All ranks see the same entries, so they all throw, or none does.
void LocalRanks::check_entries(uint32_t parity) const {
  const RoundEntry& first = block_.slot(0).entries[parity];
  for (uint32_t r = 0; r < size(); ++r) {
    const RoundEntry& entry = block_.slot(r).entries[parity];
    if (entry.operation == first.operation && entry.bytes == first.bytes &&
        entry.bytes != kWrongOutput) {
      continue;
    }
    throw LogicError(fmt::format("collective calls differ: rank {} calls {}, rank 0 {}", r,
                                 call_text(entry), call_text(first)));
  }
}

std::vector<std::byte*> LocalRanks::share(size_t bytes) {
  last_shared_ = share_with_all(bytes);
  return only_near(last_shared_);
}

std::vector<std::byte*> LocalRanks::share_near(size_t bytes) {
  return only_near(share_with_all(bytes));
}

std::vector<std::byte*> LocalRanks::only_near(std::vector<std::byte*> addresses) const {
  for (uint32_t of = 0; of < size(); ++of) {
    if (!is_near(of)) addresses[of] = nullptr;
  }
  return addresses;
}

void LocalRanks::read(std::span<const RemotePart> parts) {
  for (const RemotePart& part : parts) {
    std::memcpy(part.into.data(), last_shared_[part.of] + part.offset, part.into.size());
  }
}

void LocalRanks::create_signals(uint32_t count) {
  EBB_CHECK(signals_.empty(), "signals are created once");
  const std::vector<uint32_t> counts = collect(Operation::CreateSignals, count);
  for (uint32_t r = 0; r < size(); ++r) {
    EBB_CHECK(counts[r] == counts[0], fmt::format("rank {} creates {} signals, rank 0 creates {}",
                                                  r, counts[r], counts[0]));
  }
  // Each rank has memory for its signals, and for those of one rank of each other machine.
  const uint32_t per_machine = ranks_per_machine(), machine = rank_ / per_machine;
  const std::vector<std::byte*> memory =
      share_with_all(size() / per_machine * count * sizeof(FutexWord));
  for (uint32_t r = 0; r < size(); ++r) {
    const uint32_t holder = memory[r] != nullptr ? r : machine * per_machine + r % per_machine;
    signals_.push_back(reinterpret_cast<FutexWord*>(memory[holder]) + r / per_machine * count);
  }
  num_signals_ = count;
}

void LocalRanks::raise(uint32_t signal, uint32_t value) {
  EBB_CHECK(signal < num_signals_, fmt::format("signal {} of {}", signal, num_signals_));
  FutexWord& word = signals_[rank_][signal];
  EBB_CHECK(word.load() <= value,
            fmt::format("signal {} is lowered from {} to {}", signal, word.load(), value));
  word.raise(value);
  progress();
}

void LocalRanks::wait(uint32_t of, uint32_t signal, uint32_t value) {
  const uint32_t before = this->value(of, signal);
  throw_if_failed(block_);
  if (before >= value) return;
  const FutexWord& word = signals_[of][signal];
  wait_for(word, value, of, [&] {
    return fmt::format("raised signal {} to {} (its value is {})", signal, value, word.load());
  });
}

uint32_t LocalRanks::value(uint32_t of, uint32_t signal) const {
  EBB_CHECK(of < size() && signal < num_signals_,
            fmt::format("signal {} of {}, rank {} of {}", signal, num_signals_, of, size()));
  return signals_[of][signal].load();
}

void LocalRanks::progress() noexcept {
  block_.slot(rank_).progress.fetch_add(1, std::memory_order_relaxed);
}

uint64_t LocalRanks::progress_of_all() const {
  uint64_t sum = 0;
  for (uint32_t r = 0; r < size(); ++r) {
    sum += block_.slot(r).progress.load(std::memory_order_relaxed);
  }
  return sum;
}

/// A failure that comes when the word has its value does not end the wait. So if all ranks have
/// arrived at an exchange, none of them learns from it that another one failed afterwards: ranks
/// that all throw the same error because of what they exchanged do throw this error.
template <class Awaited>
void LocalRanks::wait_for(const FutexWord& word, uint32_t value, uint32_t of,
                          const Awaited& awaited, bool also_after_it_left) {
  double waited_s = 0, last_s = 0;  // since a rank got further
  uint64_t progress = 0;
  for (uint32_t seen = 0;;) {
    if ((seen = word.load()) >= value) return;
    throw_if_failed(block_);
    // A rank leaves after it has raised its last word, so the word is read again.
    if (!also_after_it_left && block_.slot(of).is(RankState::Left) && word.load() < value) {
      announce(fmt::format("rank {} waits for rank {}, which has left the run and has not {}",
                           rank_, of, awaited()));
      continue;
    }
    if (last_s == 0) last_s = steady_now_s();
    if (const uint64_t now = progress_of_all(); now != progress) {
      progress = now;
      waited_s = 0;
    }
    if (waited_s >= timeout_s_) {
      const std::string missing = explain_ ? explain_() : "";
      announce(missing.empty()
                   ? fmt::format("rank {} has waited {:.3g} s for rank {}, which has not {}", rank_,
                                 timeout_s_, of, awaited())
                   : fmt::format("{} for {:.3g} s", missing, timeout_s_));
      continue;
    }
    word.sleep(seen, std::min(kLookEvery_s, timeout_s_ - waited_s));
    const double now_s = steady_now_s();
    waited_s += std::min(now_s - last_s, 2 * kLookEvery_s);  // more if the process was stopped
    last_s = now_s;
  }
}

void LocalRanks::wait_for_bytes(const FutexWord& word, uint32_t value, uint32_t of,
                                std::string_view awaited) {
  wait_for(
      word, value, of, [&] { return awaited; }, true);
}

void LocalRanks::fail(std::string_view message) noexcept {
  char text[kFailureBytes];
  std::snprintf(text, sizeof text, "rank %u failed: %.*s", rank_,
                static_cast<int>(std::min(message.size(), sizeof text)), message.data());
  announce(text);
}

void LocalRanks::announce(std::string_view text) noexcept { announce_failure(block_, rank_, text); }

}  // namespace ebb
