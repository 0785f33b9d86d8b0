// The connection of a rank to ranks of other machines: a thread, the only one that calls MPI. The
// rank and its link share this object.
//
// A rank has a partner on each other machine: the rank with the same number there. Each tells its
// partners what it does (entries of collective calls, raised signals, that it lives or leaves), and
// writes what it hears into the memory that the ranks of its machine share. So a message crosses to
// a machine once, and all ranks there see it. A failure goes to the partners, too. Only copies of
// memory go to any rank: the link of the owner answers requests.
//
// Copies arrive in buffers of the link, and the thread that wants them copies them on. So a rank
// that is lost in the middle of a transfer cannot write to memory that was freed meanwhile.
//
// MPI never ends a wait for a lost rank. So nobody waits for this thread without a limit: where it
// does not end, it goes on alone, with what it needs, until the process ends.
//
// Thread-safety: run() belongs to the thread; one thread at a time calls publish(); any thread may
// call the others. Errors of MPI end the run of all ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/control_block.h"
#include "comm/mpi/ebb_mpi.h"
#include "comm/network_pace.h"
#include "comm/rank_memory.h"

namespace ebb {

/// What MPI knows about a run.
struct MpiPlace {
  uint32_t rank = 0;
  uint32_t size = 0;
  uint64_t run = 0;                // differs between runs
  std::vector<uint32_t> machines;  // of each rank, the lowest rank of its machine
};

/// A buffer for a part of the memory of another rank.
struct ReadSlot {
  std::unique_ptr<std::byte[]> data;
  uint32_t num_requests = 0;      // written by the thread that has taken the slot
  FutexWord arrived{};            // the number of requests that were answered
  MpiRequest* request = nullptr;  // belongs to the link
};

/// The beginning of each message.
struct LinkHeader {
  enum class Kind : uint32_t { Beat, Entry, Signal, Request, Failure, Leave };
  Kind kind;
  uint32_t number =
      0;               // Beat: kLinkFormat; Entry: the round; Signal: its number; Request: the slot
  uint32_t value = 0;  // Beat: the process; Entry: the operation; Signal: its value
  uint64_t bytes = 0;  // Beat: the progress; Entry: of the whole call; Request: to copy
  uint64_t offset = 0;  // Request: in the memory that the receiver shares
};

class MachineLink {
 public:
  static constexpr size_t kReadBytes = 1 << 20;  // of a slot
  static constexpr uint32_t kReadSlots = 16;

  /// Starts the thread and MPI. All ranks call it. When the last copy of the pointer is destroyed,
  /// the rank leaves: its link ends when the ranks of all other machines have left, too, or two
  /// seconds after a failure. Throws RankLost if MPI has not started after timeout_s, because not
  /// all ranks have come, and Error if MPI refuses.
  static std::shared_ptr<MachineLink> start(const MpiFunctions& mpi, double timeout_s,
                                            double network_bytes_per_s = 0);

  /// `network_bytes_per_s`: of the memory that it sends; 0: as fast as MPI.
  MachineLink(const MpiFunctions& mpi, double network_bytes_per_s);

  const MpiPlace& place() const { return place_; }
  /// Begins to send and to receive. Called once.
  void serve(std::shared_ptr<RankMemory> memory);

  void publish(const RoundEntry& entry, size_t bytes);
  void raise(uint32_t signal, uint32_t value);
  /// The signals of each rank, in the memory of the run on this machine.
  void set_signals(std::span<FutexWord* const> signals);
  /// The memory of this rank of which other machines may copy parts.
  void set_shared(std::span<const std::byte> memory);

  /// Null: all slots are taken. Then given_back() is raised when one is free.
  ReadSlot* take_slot();
  void give_back(ReadSlot* slot);
  const FutexWord& given_back() const { return given_back_; }
  /// Asks for bytes of the memory of another rank; `arrived` of the slot is then raised to its
  /// num_requests. REQUIRES: bytes <= kReadBytes.
  void request(ReadSlot& slot, uint32_t of, uint64_t offset, size_t bytes);

 private:
  struct Outgoing {
    uint32_t to;  // kMpiAnyRank: all partners
    std::vector<std::byte> bytes;
    ReadSlot* slot;  // of a Request
  };
  /// A request that is answered when it is `until_s`, because a network is emulated.
  struct Delayed {
    double until_s;
    LinkHeader request;
    uint32_t to;
  };
  struct Sending {
    MpiRequest* request;
    std::vector<std::byte> bytes;
  };

  void run();
  void start_mpi();
  void serve_until_end();
  void end();
  void queue(uint32_t to, const LinkHeader& header, std::span<const std::byte> payload = {},
             ReadSlot* slot = nullptr);

  bool send_queued();
  void send(Outgoing&& message);
  bool end_sends();
  void receive_next();
  bool handle_received();
  void handle(const LinkHeader& header, std::span<const std::byte> payload, uint32_t from);
  void answer(const LinkHeader& request, uint32_t to);
  bool answer_later(double now_s);
  bool end_reads();
  void beat(double now_s);
  void forward_failure(double now_s);
  void leave(double now_s);
  bool have_far_ranks_left() const;
  bool is_at_end(double now_s);
  bool is_near(uint32_t rank) const;
  ControlBlock& block() const { return memory_->block(); }

  const MpiFunctions& mpi_;
  MpiPlace place_;
  std::thread thread_;
  FutexWord started_{};  // 1: place_ is known
  FutexWord begin_{};    // 1: memory_ is known, or nothing is to be served
  FutexWord ended_{};    // 1: the thread has nothing left to do
  std::atomic<bool> is_leaving_ = false;
  std::string error_;  // why MPI has not started; written before ended_
  std::shared_ptr<RankMemory> memory_;

  std::mutex mutex_;  // for what follows
  std::vector<Outgoing> queue_;
  FutexWord queued_{};  // counts
  std::span<const std::byte> shared_;
  std::vector<FutexWord*> signals_;
  std::vector<ReadSlot*> free_slots_;
  FutexWord given_back_{};  // counts

  uint32_t num_published_ = 0;
  std::vector<ReadSlot> slots_;

  // Of the thread.
  std::vector<uint32_t> partners_;
  std::vector<Sending> sending_;
  NetworkPace pace_;
  std::deque<Delayed> delayed_;
  std::vector<std::byte> received_;
  MpiRequest* receiving_ = nullptr;
  double beaten_s_ = 0;
  double failed_s_ = 0;  // when the link saw that the run had failed; 0: not yet
  double left_s_ = 0;    // when the link said that the rank had left; 0: not yet
  bool has_forwarded_ = false;
  bool may_finish_ = true;
};

}  // namespace ebb
