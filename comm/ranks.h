// The ranks of a run, seen from one of them.
//
// A rank is a thread or a process with a device. All ranks of a run train one model together. They
// meet in two ways. An exchange is collective: each rank gives a few bytes and receives those of
// all ranks. A signal is one number that its rank raises, from step to step; other ranks wait until
// it has reached a value. What a rank wrote before raise() is visible to a rank after its wait().
//
//   ranks.raise(kChunkUpdated + 7, step);           // by the rank that stores chunk 7
//   ranks.wait(owner, kChunkUpdated + 7, step);     // by every rank that loads it
//
// Waits must not form a cycle. Signals of a rank are numbered from 0.
//
// Ranks are numbered machine by machine, the same number on each machine: rank r is on machine
// r / ranks_per_machine(). Ranks of one machine address the memory of each other (share()). The
// memory of a rank on another machine is copied (read()).
//
// Thread-safety: one thread of a rank at a time calls the collective functions (exchange(),
// share(), create_signals()). All ranks call them in the same order; otherwise they throw
// LogicError. Any thread may call the others. One signal is raised by one thread at a time.
//
// Errors: after the first fail() of any rank, and when a rank is gone, or when a rank waits and no
// rank has got further (progress()) for the time limit, each call that waits throws RankLost on
// every rank, now and later, with one message. So a rank that ends because of an error must call
// fail(): the others then do not wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "device/errors.h"

namespace ebb {

/// Another rank has failed, is gone, or makes no progress. The message names it.
class RankLost : public Error {
 public:
  using Error::Error;
};

/// Bytes from `offset` on of the memory that the rank `of` shares, and where they are copied to.
struct RemotePart {
  uint32_t of;
  uint64_t offset;
  std::span<std::byte> into;
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  /// The number of this rank, from 0, and the number of all ranks.
  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  virtual uint32_t ranks_per_machine() const = 0;
  /// Is the rank `of` on the machine of this rank?
  bool is_near(uint32_t of) const {
    return of / ranks_per_machine() == rank() / ranks_per_machine();
  }

  /// Gives `mine` to all ranks, and fills `all` with the bytes of rank 0, then those of rank 1, and
  /// so on. Returns when all ranks have called it. Throws LogicError unless all ranks give the same
  /// number of bytes, and all.size() is that number times size().
  virtual void exchange(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  /// Allocates `bytes` of zeroed memory that every rank of this machine can address; ranks may ask
  /// for different sizes. Returns the address of the memory of each rank in this process; each
  /// begins with a page. The address is null for ranks of other machines. Collective. The memory
  /// lives as long as this object. Throws Error if the system refuses it.
  virtual std::vector<std::byte*> share(size_t bytes) = 0;
  /// The same for memory that other machines do not read: read() still copies from that of the last
  /// share(). In one call, all ranks use share(), or all use share_near().
  virtual std::vector<std::byte*> share_near(size_t bytes) = 0;
  /// Copies parts of the memory that ranks made with their last share(). Returns when all parts are
  /// copied. Several threads of a rank may read at once; the other rank does nothing for it.
  /// REQUIRES: the bytes exist, and no rank changes them meanwhile.
  virtual void read(std::span<const RemotePart> parts) = 0;

  /// Makes `count` signals of each rank, all 0. Collective, with the same count; called once.
  virtual void create_signals(uint32_t count) = 0;
  /// Raises a signal of this rank to `value`. Does not wait. REQUIRES: `value` is not below the
  /// present value of the signal.
  virtual void raise(uint32_t signal, uint32_t value) = 0;
  /// The same for a signal for which only ranks of this machine wait. Ranks of other machines may
  /// not see the new value.
  virtual void raise_near(uint32_t signal, uint32_t value) { raise(signal, value); }
  /// Blocks until the signal of the rank `of` is at least `value`.
  virtual void wait(uint32_t of, uint32_t signal, uint32_t value) = 0;
  /// The present value of a signal.
  virtual uint32_t value(uint32_t of, uint32_t signal) const = 0;

  /// Has a rank failed, or is one lost? Does not wait.
  virtual bool has_failed() const noexcept = 0;
  /// Says that this rank gets further, so that no rank gives up waiting. Collective calls and
  /// raise() say it, too. Any thread may call it, as often as it likes.
  virtual void progress() noexcept = 0;
  /// `explain` is called on a thread that gives up waiting. It returns what the run waits for, such
  /// as "rank 2 has not finished the backward of h.17"; if it is empty, or returns an empty text,
  /// the message names the call or the signal. To be set while no thread of this rank waits.
  virtual void explain_waits(std::function<std::string()> explain) = 0;

  /// Ends the run of all ranks: waits of every rank throw RankLost with the number of this rank and
  /// this message (its first 900 bytes). Only the first failure of all ranks counts.
  virtual void fail(std::string_view message) noexcept = 0;
};

/// Ranks::exchange() of values: fills `all` with `mine` of rank 0, then that of rank 1, and so on.
template <class T>
void exchange(Ranks& ranks, std::span<const T> mine, std::span<T> all) {
  static_assert(std::is_trivially_copyable_v<T>);
  ranks.exchange(std::as_bytes(mine), std::as_writable_bytes(all));
}
/// The same for one value of each rank.
template <class T>
std::vector<T> all_of_ranks(Ranks& ranks, const T& mine) {
  std::vector<T> all(ranks.size());
  exchange(ranks, std::span<const T>(&mine, 1), std::span<T>(all));
  return all;
}

}  // namespace ebb
