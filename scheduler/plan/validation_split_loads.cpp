#include "scheduler/plan/validation_split_loads.h"

#include <algorithm>

namespace ebb::validation {

SplitLoads::Slot* SplitLoads::slot_of(const Op& op) {
  const bool is_message = op.kind == OpKind::Send || op.kind == OpKind::Receive;
  if (is_message && op.message < Message::PartLoaded) report_.complain("names a split load");
  Slot& slot = slots_[op.split % kPartSlots];
  if (op.split != kNone && slot.number == op.split && slot.chunk == op.chunk) return &slot;
  report_.complain("is about split load {} of chunk {}, whose part is not in its slot", op.split,
                   op.chunk.index);
  return nullptr;
}

void SplitLoads::load(const Op& part, uint32_t version) {
  if (!division_.splits_loads || part.split != num_loaded_) {
    return report_.complain("loads a part of split load {}, the next is {}", part.split,
                            num_loaded_);
  }
  ++num_loaded_;
  Slot& slot = slots_[part.split % kPartSlots];
  if (slot.number != kNone) {
    if (slot.gathered == kNone || slot.all_gathered == kNone) {
      report_.complain("the slot still has a part of split load {}", slot.number);
    }
    memory_.require_after(slot.gathered, "gathers split load {}", slot.number);
    memory_.require_after(slot.all_gathered, "receives gathered");
  }
  slot = {.number = part.split, .chunk = part.chunk, .version = version, .loaded = report_.at()};
}

uint32_t SplitLoads::gather(const Op& move) {
  Slot* const slot = slot_of(move);
  if (slot == nullptr) return 0;
  if (move.split != num_gathered_) {
    report_.complain("gathers split load {}, the next is {}", move.split, num_gathered_);
  }
  ++num_gathered_;
  if (slot->all_loaded == kNone) report_.complain("does not wait for the parts of other ranks");
  memory_.require_after(slot->loaded, "loads the part of this rank");
  memory_.require_after(slot->all_loaded, "receives part loaded");
  slot->gathered = report_.at();
  return slot->version;
}

void SplitLoads::send(const Op& op) {
  const Slot* const slot = slot_of(op);
  if (slot == nullptr) return;
  const bool is_loaded = op.message == Message::PartLoaded;
  const OpIndex done = is_loaded ? slot->loaded : slot->gathered;
  if (done == kNone) report_.complain("split load {} is not gathered", op.split);
  memory_.require_after(done, "is announced");
  const uint32_t number = is_loaded ? num_loaded_sent_++ : num_gathered_sent_++;
  if (op.split != number) report_.complain("announces split load {}, not {}", op.split, number);
}

void SplitLoads::receive(const Op& op) {
  Slot* const slot = slot_of(op);
  if (slot == nullptr) return;
  (op.message == Message::PartLoaded ? slot->all_loaded : slot->all_gathered) = report_.at();
}

void SplitLoads::check_end() {
  const auto compare = [&](const char* what, uint32_t expected, uint32_t counted) {
    if (expected != counted) report_.complain("{} {} times instead of {}", what, counted, expected);
  };
  compare("gathers parts", num_loaded_, num_gathered_);
  compare("sends part loaded", num_loaded_, num_loaded_sent_);
  compare("sends gathered", num_loaded_ - std::min(num_loaded_, kPartSlots), num_gathered_sent_);
}

}  // namespace ebb::validation
