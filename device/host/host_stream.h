// A stream of the host backend: a thread and a ring of commands.
//
// Loops run on the stream's thread and others beside it, as LoopQueue has it: the thread goes on to
// the next commands while a loop is under way. Waits for what is over already, and further loops,
// are then begun; the rest, records among it, waits for its turn.
//
// Nothing is allocated after construction; submitting blocks while the ring is full. What is queued
// when the stream is destroyed still runs. Thread-safety: as Stream says; stats() and synchronize()
// may be called from any thread but the stream's own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "device/budget.h"
#include "device/host/host_event.h"
#include "device/host/host_link.h"
#include "device/host/loop_queue.h"
#include "device/host/parallel.h"
#include "device/host/pretended_blocks.h"
#include "device/host/quiet_lock.h"

namespace ebb {

/// What a stream uses of its device; all of it outlives the stream.
struct HostStreamOptions {
  Link* load = nullptr;
  Link* store = nullptr;
  Faults* faults = nullptr;
  const char* name = "stream";  ///< of its thread; static storage, at most 15 characters
  int nice = 0;                 ///< of the stream's thread, relative to none
  ThreadTeam* team = nullptr;   ///< threads that work for this stream and take its nice value
  int num_loop_threads = 0;     ///< that run loops beside and with the stream's; 0: it runs none
  const PageTable* pages = nullptr;  ///< where copies look addresses up; null: they need not
  /// Told by the stream's thread when an operation fails, before any later event fires: how many
  /// operations, records and waits were submitted up to it, and why. May be empty.
  std::function<void(uint64_t position, std::exception_ptr)> failed = {};
};

class HostStream final : public Stream {
 public:
  explicit HostStream(const HostStreamOptions& options);
  ~HostStream() override;

  void record(Event& event) override;
  void wait(const Event& event) override;
  void copy(void* to, const void* from, size_t bytes, CopyKind kind) override;
  void call(const Cost& cost, HostFunction function) override;
  void loop(const Cost& cost, LoopFunction function) override;
  void synchronize() override;
  StreamStats stats() const override;

 private:
  struct Command {
    enum class Kind : uint8_t { Record, Wait, Copy, Call, Loop };
    Kind kind = Kind::Record;
    double submitted_s = 0;
    HostEvent* event = nullptr;          // Record
    const HostEvent* awaited = nullptr;  // Wait
    uint64_t generation = 0;             // Record, Wait
    void* to = nullptr;                  // Copy, as the next three
    const void* from = nullptr;
    size_t bytes = 0;
    CopyKind copy_kind = CopyKind::Within;
    std::string_view name = {};                              // Call, Loop
    std::variant<HostFunction, LoopFunction> function = {};  // Call, Loop
    bool is_queued = false;                                  // Loop: among loops_
    double begin_s = 0;                                      // Loop
  };

  void push(Command command);
  /// Until so many commands are finished.
  void wait_finished(QuietLock& lock, uint64_t count);
  /// The next command; null when stopping and nothing is left, no loop either.
  Command* next();
  void run_thread();
  void begin(Command& command);
  /// In their order, commands that are begun and wait for no loop.
  void finish_begun();
  void finish_loop(const Command& command);
  /// Works on loops until `ready()`, or none is left.
  template <class Ready>
  void work_until(const Ready& ready);
  void finish_loops();
  void run_loop(Command& command);
  void run_wait(const Command& command);
  void run_work(Command& command);
  void run_copy(const Command& command);
  /// What `bytes` from there on are, as far as it is one piece.
  PageTable::Memory memory_at(const void* begin, size_t offset, size_t bytes) const;
  void copy_piece(std::byte* to, const std::byte* from, size_t bytes, CopyKind kind);
  void run_call(Command& command);
  void fail(std::exception_ptr error);

  const HostStreamOptions options_;
  const std::unique_ptr<LoopQueue> loops_;
  std::vector<Command> ring_;
  // Of the stream's thread: when its next operation could begin, were no copy late; and when what
  // it did was done.
  double ready_s_ = 0, done_s_ = 0;
  uint64_t num_begun_ = 0;  // of commands, by it; those from num_finished_ on wait for loops
  double loop_end_s_ = 0;   // of the last loop

  mutable std::mutex mutex_;
  std::condition_variable pushed_;
  std::condition_variable finished_;
  uint64_t num_pushed_ = 0;
  uint64_t num_finished_ = 0;
  uint64_t awaited_ = UINT64_MAX;  // the least number of finished commands that somebody waits for
  bool stopping_ = false;
  std::exception_ptr error_;  // written by the stream's thread
  StreamStats stats_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ebb
