// The third part of the planner: from the decisions of Residency it makes the list of operations.
// Each operation lists the operations that it waits for. Part of make_plan(); one thread.
#pragma once

#include <array>
#include <deque>
#include <initializer_list>
#include <optional>
#include <vector>

#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/residency.h"
#include "scheduler/plan/running_sums.h"
#include "scheduler/plan/sum_slots.h"

namespace ebb {

class Emitter {
 public:
  /// REQUIRES: residency.run() has returned; plan.chunks and plan.gradient_buffers are set. All
  /// arguments must outlive this object.
  Emitter(const ChunkTrace& chunk_trace, const Layout& layout, const PlanOptions& options,
          Residency& residency, Plan& plan)
      : chunk_trace_(chunk_trace),
        layout_(layout),
        options_(options),
        residency_(residency),
        plan_(plan) {}
  /// Adds all operations to the plan, and sets Store::op in the residency. Called once.
  void run();

 private:
  /// Adds an operation to the plan. Of `waits`, leaves out kNone.
  OpIndex emit(Op op, std::initializer_list<OpIndex> waits);
  void emit_item(ItemIndex item);
  void emit_stores_after(ItemIndex item);
  void emit_store(Store& store);
  void order_assignments();
  void emit_assignments_after(ItemIndex position);
  void emit_assignment(const Assignment& assignment);
  OpIndex emit_source(Op& load);
  bool needs_slot(ChunkId chunk) const;
  /// Drops the copy of `chunk` on the device after `store`, or if that is kNone, after `last_item`.
  void emit_drop(StreamKind stream, FlatIndex chunk, BlockIndex block, ItemIndex last_item,
                 StoreIndex store);
  void emit_update(ChunkIndex chunk, OpIndex wait, bool deferred = false);
  void emit_first_updates();
  void emit_copies(uint32_t end_row);
  void emit_copy(ChunkIndex chunk);
  void emit_store_partial_norms(ChunkIndex chunk, OpIndex finish);
  void emit_norm();
  // If loads are split (split_loads.h):
  void find_split_loads();
  bool is_split(const Assignment& assignment) const;
  void emit_parts(uint32_t end);
  void emit_part(ChunkId chunk, uint32_t number);
  // If the sums of groups are stored (Division::stores_groups()):
  void emit_sum_store(Store& store);
  void emit_add_groups(ChunkIndex chunk, OpIndex last_call);
  void emit_own_addition(ChunkIndex chunk);
  void emit_gradient_end(ChunkIndex chunk, OpIndex rounded);
  // If the sums of machines are chained:
  void emit_chained_addition(ChunkIndex chunk, OpIndex last_call, OpIndex is_copied);
  OpIndex running_slot_is_free(BufferIndex slot);
  OpIndex emit_fetch_sum(ChunkIndex chunk, uint32_t sender, BufferIndex slot, OpIndex is_free);
  void emit_round_total(ChunkIndex chunk);
  void round_totals_until(uint32_t num_added);
  void round_totals_before_load(ChunkIndex chunk);
  /// With one rank there are no messages: then these two return kNone.
  OpIndex emit_send(Message message, ChunkId chunk, std::initializer_list<OpIndex> waits,
                    bool deferred = false);
  OpIndex emit_receive(Message message, ChunkId chunk, uint32_t sender = kNone,
                       bool deferred = false, StreamKind stream = StreamKind::Receive);
  OpIndex emit_split_send(Message message, ChunkId chunk, uint32_t number, OpIndex wait);
  OpIndex emit_split_receive(Message message, uint32_t number);
  OpIndex added(ChunkIndex chunk);
  void emit_end();
  OpIndex item_op(ItemIndex item) const { return item == kStart ? kNone : op_of_item_[item]; }
  OpIndex store_op(StoreIndex store) const {
    return store == kNone ? kNone : residency_.stores[store].op;
  }
  OpIndex weights_before(ChunkId id);

  const ChunkTrace& chunk_trace_;
  const Layout& layout_;
  const PlanOptions& options_;
  Residency& residency_;
  Plan& plan_;
  std::vector<OpIndex> op_of_item_;
  std::vector<OpIndex> pending_load_;  // [flat index] the load that no item has waited for yet
  std::vector<OpIndex> last_drop_;     // [flat index]
  std::vector<AssignmentIndex> assignment_order_;  // by position
  /// [order_of(position)] the end of the assignments at this position in assignment_order_
  std::vector<uint32_t> first_assignment_after_;
  size_t next_assignment_ = 0;
  std::vector<StoreIndex> store_order_;  // by after_item
  size_t next_store_ = 0;
  std::vector<OpIndex> last_update_of_buffer_;  // [gradient buffer]
  /// [parameter chunk] its deferred update, or that of this step; for a chunk of another rank, the
  /// message about it, or the fetch to the copy of this machine.
  std::vector<OpIndex> last_update_;
  uint32_t next_row_ = 0;       // to be fetched for this machine
  std::vector<bool> is_new_;    // [parameter chunk of another rank] updated in this step
  std::vector<OpIndex> added_;  // [parameter chunk] adds its groups, or the message about it
  std::vector<OpIndex> last_load_of_slot_;    // [fetch slot]
  BufferIndex next_slot_{0};                  // of the next fetch
  std::vector<AssignmentIndex> split_loads_;  // by number
  uint32_t next_part_ = 0;                    // the number of the next load of a part
  uint32_t next_gather_ = 0;                  // and of the next gather of parts
  std::optional<SumSlots> slots_;             // if the sums of groups are stored
  /// [running slot] the chunk whose running sum was in it last
  std::array<ChunkIndex, kRunningSums> in_running_slot_{};
  uint32_t num_chained_ = 0;  // additions to running sums
  /// [parameter chunk] num_chained_ when this rank had added or sent its sums
  std::vector<uint32_t> num_added_with_;
  /// Chunks of this rank that are to be rounded when it has added the groups of so many chunks.
  struct Unrounded {
    ChunkIndex chunk;
    uint32_t num_added;
  };
  std::deque<Unrounded> unrounded_;
  std::vector<OpIndex> rounded_;  // [parameter chunk] its RoundTotal
  OpIndex last_round_ = kNone;
  std::vector<uint32_t> parts_stored_;   // [parameter chunk] gradient chunks stored
  OpIndex last_gradient_store_ = kNone;  // or the last rounding of added groups
  OpIndex last_sum_store_ = kNone;
  OpIndex norm_ = kNone;
};

}  // namespace ebb
