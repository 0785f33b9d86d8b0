// The second half of the planner: it makes the list of operations from the decisions of Residency,
// each with the operations that it waits for. Part of make_plan(); one thread.
#pragma once

#include <initializer_list>
#include <vector>

#include "scheduler/plan/chunk_trace.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/residency.h"

namespace ebb {

class Emitter {
 public:
  Emitter(const ChunkTrace& chunk_trace, const Layout& layout, const PlanOptions& options,
          Residency& residency, Plan& plan)
      : chunk_trace_(chunk_trace),
        layout_(layout),
        options_(options),
        residency_(residency),
        plan_(plan) {}
  void run();

 private:
  OpIndex emit(Op op, std::initializer_list<OpIndex> waits);
  void emit_item(ItemIndex item);
  void emit_stores_after(ItemIndex item);
  void emit_store(Store& store);
  void order_assignments();
  void emit_assignments_after(ItemIndex position);
  void emit_assignment(const Assignment& assignment);
  void emit_drop(StreamKind stream, FlatIndex chunk, BlockIndex block, ItemIndex last_item,
                 StoreIndex store);
  void emit_update(ChunkIndex chunk, OpIndex wait, bool deferred = false);
  void emit_store_partial_norms(ChunkIndex chunk, OpIndex finish);
  void emit_norm();
  void emit_end();
  OpIndex item_op(ItemIndex item) const { return item == kStart ? kNone : op_of_item_[item]; }
  OpIndex store_op(StoreIndex store) const {
    return store == kNone ? kNone : residency_.stores[store].op;
  }
  /// The update that a load of this chunk must wait for, or kNone.
  OpIndex update_before(ChunkId id) const {
    return id.space == Space::Weights ? last_update_[id.index] : kNone;
  }

  const ChunkTrace& chunk_trace_;
  const Layout& layout_;
  const PlanOptions& options_;
  Residency& residency_;
  Plan& plan_;
  std::vector<OpIndex> op_of_item_;
  std::vector<OpIndex> pending_load_;  // [flat index] the load that no item has waited for yet
  std::vector<OpIndex> last_drop_;     // [flat index]
  std::vector<AssignmentIndex> assignment_order_;  // by position
  std::vector<uint32_t> first_assignment_after_;  // [order of position] in assignment_order_
  size_t next_assignment_ = 0;
  std::vector<StoreIndex> store_order_;  // by after_item
  size_t next_store_ = 0;
  std::vector<OpIndex> last_update_of_buffer_;
  std::vector<OpIndex> last_update_;  // [parameter chunk] its deferred update, or that of this step
  std::vector<uint32_t> parts_stored_;  // [parameter chunk] gradient chunks stored
  OpIndex last_gradient_store_ = kNone;
  OpIndex norm_ = kNone;
};

}  // namespace ebb
