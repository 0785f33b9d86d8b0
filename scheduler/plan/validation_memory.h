// Follows blocks and chunks through a plan: which content is where, and which operations wrote and
// read it. Complains of every pair of accesses whose order the plan does not force. Part of
// validate(); one thread.
#pragma once

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/index_format.h"
#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/validation_order.h"

namespace ebb::validation {

/// Collects mistakes, each with the operation at which it is found. Keeps the first messages.
class Report {
 public:
  static constexpr size_t kMaxMessages = 50;

  Report(const Plan& plan, std::vector<std::string> messages)
      : plan_(plan), messages_(std::move(messages)) {}
  /// The operation that is checked now; kNone: the plan as a whole.
  OpIndex at() const { return at_; }
  void set_at(OpIndex op) { at_ = op; }
  size_t stream() const { return static_cast<size_t>(plan_.ops[at_].stream); }
  template <class... Args>
  void complain(fmt::format_string<Args...> text, Args&&... args) {
    if (messages_.size() >= kMaxMessages) return;
    const std::string where =
        at_ == kNone ? "plan" : fmt::format("op {} ({})", at_, name_of(plan_.ops[at_].kind));
    messages_.push_back(where + ": " + fmt::format(text, std::forward<Args>(args)...));
  }
  std::vector<std::string> take() { return std::move(messages_); }

 private:
  const Plan& plan_;
  std::vector<std::string> messages_;
  OpIndex at_ = kNone;
};

class Memory {
 public:
  Memory(const Layout& layout, uint32_t num_arena_chunks, uint32_t num_blocks,
         uint32_t num_fetch_slots, const Order& order, Report& report);

  bool exists(ChunkId id) const;
  /// The operation that is checked must come after `earlier`, "which <what>".
  template <class... Args>
  void require_after(OpIndex earlier, fmt::format_string<Args...> what, Args&&... args) {
    if (comes_after(earlier)) return;
    report_.complain("does not wait for op {}, which {}", earlier,
                     fmt::format(what, std::forward<Args>(args)...));
  }

  // What kernels do on the device.
  void read(Space space, uint64_t first, uint64_t count);
  void write(Space space, uint64_t first, uint64_t count);
  void read(ChunkId id) { read(flat_index(id)); }
  void write(ChunkId id) { write(flat_index(id)); }
  /// Counts how often the chunk got a block: with the same number its content was not lost.
  uint32_t stay(ChunkId id) const { return chunks_[flat_index(id)].stay; }
  /// Fetched weights wait in this slot, or without one in the copy of this machine.
  void fetch(const Op& op, size_t bytes);
  /// Another rank of this machine has fetched the weights to the copy.
  void receive_copy(ChunkId id);
  /// The content of this chunk is not needed any more.
  void forget(ChunkId id);

  // What the plan does with chunks.
  /// Returns the version of the content that a load copies. `from_copy`: it loads weights from the
  /// copy of this machine.
  uint32_t read_source(const Op& load, bool from_copy);
  /// `version`: of the content that the chunk gets in its block; 0: it gets no content.
  void bring(const Op& op, uint32_t version);
  void store(const Op& op, size_t bytes);
  void drop(const Op& op);
  /// Called first: the weights in host memory wait for a deferred update.
  void expect_deferred_update(ChunkId id);
  void update_home(const Op& update);
  void update_here(ChunkId id);
  /// The weights in host memory may be the old or the new ones.
  void speculate(ChunkId id);
  /// The owner of the chunk, another rank, may update the weights in host memory from now on;
  /// receive_home(): it has updated them.
  void update_elsewhere(ChunkId id);
  void receive_home(ChunkId id);
  /// Called first: weights that the step before left on the device.
  void expect_residents(std::span<const ChunkRecord> chunks);
  /// For resident weights: the copy in host memory is out of date.
  void leave_home(ChunkId id) { chunks_[flat_index(id)].home.version = 0; }

  /// Exactly these chunks must be on the device, as the next step expects them.
  void check_end(std::span<const ChunkRecord> chunks);
  uint32_t peak_blocks() const { return peak_blocks_; }
  size_t gathered_bytes() const { return gathered_bytes_; }
  size_t fetched_bytes() const { return fetched_bytes_; }
  size_t loaded_bytes() const { return loaded_bytes_; }
  size_t stored_bytes() const { return stored_bytes_; }

 private:
  /// The content of a chunk in one place. A version counts writes; 0 means nothing was written.
  struct Copy {
    uint32_t version = 0;
    OpIndex writer = kNone;
    Accesses readers;  // since the last write
  };
  struct Chunk {
    Copy device, home;
    uint32_t newest = 0;
    BlockIndex block = kNone;
    uint32_t stay = 0;  // how often it got a block
    bool used = false;  // since it got its block
    bool updated = false;
    bool resident = false;  // before the first operation
    OpIndex last_drop = kNone;
  };
  struct Slot {
    FlatIndex chunk = kNone;
    Copy copy;
  };
  struct Block {
    FlatIndex occupant = kNone;
    OpIndex last_drop = kNone;
  };

  FlatIndex flat_index(ChunkId id) const {
    return FlatIndex(first_flat_[static_cast<size_t>(id.space)] + id.index);
  }
  bool comes_after(OpIndex earlier) const {
    return earlier == kNone || earlier == report_.at() || order_.before(earlier, report_.at());
  }
  std::string name(FlatIndex chunk) const;
  bool is_on_device(FlatIndex chunk);
  void require_content(FlatIndex chunk);
  void require_after_all(const Copy& copy, FlatIndex chunk, const char* where = "");
  void add_reader(Copy& copy) { copy.readers.last[report_.stream()] = report_.at(); }
  void read(FlatIndex chunk);
  void write(FlatIndex chunk);
  void allocate(FlatIndex chunk, BlockIndex block);
  uint32_t read_home(FlatIndex chunk);
  uint32_t read_slot(const Op& load);
  uint32_t read_copy(FlatIndex chunk, Copy& copy, const char* where);

  const Layout& layout_;
  const Order& order_;
  Report& report_;
  std::array<uint32_t, kNumSpaces + 1> first_flat_{};
  std::vector<Chunk> chunks_;
  std::vector<Block> blocks_;
  std::vector<Slot> slots_;   // of fetched weights
  std::vector<Copy> copies_;  // [parameter chunk] in the memory of this machine
  uint32_t num_taken_ = 0, peak_blocks_ = 0;
  size_t loaded_bytes_ = 0, stored_bytes_ = 0, gathered_bytes_ = 0, fetched_bytes_ = 0;
};

}  // namespace ebb::validation
