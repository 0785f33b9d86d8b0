// Checks the split loads of a plan (split_loads.h): a part is loaded to a slot that is free, parts
// are gathered when all ranks of the machine have loaded theirs, and each message that is awaited
// is sent once. Part of validate(); one thread.
#pragma once

#include <array>

#include "scheduler/plan/plan.h"
#include "scheduler/plan/split_loads.h"
#include "scheduler/plan/validation_memory.h"

namespace ebb::validation {

class SplitLoads {
 public:
  SplitLoads(const Division& division, Memory& memory, Report& report)
      : division_(division), memory_(memory), report_(report) {}

  /// A load of a part. `version`: of the weights that it copies.
  void load(const Op& part, uint32_t version);
  /// Returns the version of the weights in the parts that are gathered.
  uint32_t gather(const Op& move);
  // Messages about split loads:
  void send(const Op& op);
  void receive(const Op& op);
  void check_end();

 private:
  /// What a part slot has.
  struct Slot {
    uint32_t number = kNone;  // of a split load
    ChunkId chunk = {};
    uint32_t version = 0;
    OpIndex loaded = kNone, gathered = kNone;
    OpIndex all_loaded = kNone, all_gathered = kNone;  // the messages of the other ranks
  };
  /// The slot of a split load. Complains and returns null if it has another one.
  Slot* slot_of(const Op& op);

  const Division& division_;
  Memory& memory_;
  Report& report_;
  std::array<Slot, kPartSlots> slots_ = {};
  uint32_t num_loaded_ = 0, num_gathered_ = 0;
  uint32_t num_loaded_sent_ = 0, num_gathered_sent_ = 0;
};

}  // namespace ebb::validation
