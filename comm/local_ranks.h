// One rank among the ranks of one machine, which meet in a control block. The base of ranks that
// are threads and of ranks that are processes. A derived class says where the control block is and
// how memory is shared. For tests, ranks of one machine can be treated as if they were on several.
//
// If there are other machines (comm/machine_ranks.h), then another thread keeps the slots of their
// ranks in the control block up to date, and raises their signals in the memory of this machine.
//
// Exchanges: each rank writes its bytes to its own slot, raises `arrived`, and reads the slots of
// all ranks when they have arrived. Round i uses the entry i % 2 of each slot. A rank writes an
// entry again two rounds later. Then all ranks have arrived in the round between, so they have read
// the entry.
//
// Failures: a thread that waits looks every 50 ms whether a failure was announced, and whether a
// rank has got further; then its time limit begins again. So a rank may be as slow as it likes. The
// limit counts only time in which the process ran: a run that is stopped as a whole (Ctrl-Z) and
// continued does not fail.
//
// Thread-safety and errors: as Ranks.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/control_block.h"
#include "comm/ranks.h"

namespace ebb {

class LocalRanks : public Ranks {
 public:
  /// REQUIRES: `block` outlives this object.
  LocalRanks(ControlBlock& block, uint32_t rank, double timeout_s)
      : block_(block), rank_(rank), timeout_s_(timeout_s) {}

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return block_.size; }
  uint32_t ranks_per_machine() const override { return block_.ranks_per_machine; }
  void exchange(std::span<const std::byte> mine, std::span<std::byte> all) override;
  std::vector<std::byte*> share(size_t bytes) override;
  std::vector<std::byte*> share_near(size_t bytes) override;
  void read(std::span<const RemotePart> parts) override;
  void create_signals(uint32_t count) override;
  void raise(uint32_t signal, uint32_t value) override;
  void wait(uint32_t of, uint32_t signal, uint32_t value) override;
  uint32_t value(uint32_t of, uint32_t signal) const override;
  bool has_failed() const noexcept override { return block_.failed.load() != 0; }
  void progress() noexcept override;
  void explain_waits(std::function<std::string()> explain) override {
    explain_ = std::move(explain);
  }
  void fail(std::string_view message) noexcept override;

 protected:
  enum class Operation : uint32_t { Exchange, Share, CreateSignals };

  /// Allocates memory of this rank, and returns the address of the memory of each rank, or null for
  /// those that this process cannot address. Collective.
  virtual std::vector<std::byte*> share_with_all(size_t bytes) = 0;
  /// An exchange that also checks that all ranks call the same function.
  void collect(Operation operation, std::span<const std::byte> mine, std::span<std::byte> all);
  /// An exchange of one value.
  template <class T>
  std::vector<T> collect(Operation operation, const T& mine) {
    std::vector<T> all(size());
    collect(operation, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  /// Called for each entry that this rank writes to its slot, with the bytes of its piece.
  virtual void publish(const RoundEntry& /*entry*/, size_t /*bytes*/) {}
  /// The signals of each rank. Empty before create_signals().
  std::span<FutexWord* const> signals() const { return signals_; }
  /// Blocks until `word` is at least `value`, which the rank `of` causes, also after it has left.
  /// Errors say that it has not `awaited`.
  void wait_for_bytes(const FutexWord& word, uint32_t value, uint32_t of, std::string_view awaited);

 private:
  template <class Awaited>
  void wait_for(const FutexWord& word, uint32_t value, uint32_t of, const Awaited& awaited,
                bool also_after_it_left = false);
  /// Announces a failure, unless one was announced before.
  void announce(std::string_view text) noexcept;
  void check_entries(uint32_t parity) const;
  uint64_t progress_of_all() const;
  /// The addresses of ranks of this machine; the others become null.
  std::vector<std::byte*> only_near(std::vector<std::byte*> addresses) const;

  ControlBlock& block_;
  const uint32_t rank_;
  const double timeout_s_;
  uint32_t rounds_ = 0;                  // of exchanges that this rank has begun
  std::vector<std::byte*> last_shared_;  // of each rank
  std::vector<FutexWord*> signals_;      // of each rank
  uint32_t num_signals_ = 0;
  std::function<std::string()> explain_;
};

}  // namespace ebb
