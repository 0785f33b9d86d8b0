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
  uint32_t emit(Op op, std::initializer_list<uint32_t> waits);
  void emit_item(uint32_t item);
  void emit_stores_after(uint32_t item);
  void emit_store(Store& store);
  void order_assignments();
  void emit_assignments_after(uint32_t position);
  void emit_assignment(const Assignment& assignment);
  void emit_drop(StreamKind stream, uint32_t chunk, uint32_t block, uint32_t last_item,
                 uint32_t store);
  void emit_update(uint32_t parameter_chunk, uint32_t wait, bool deferred = false);
  void emit_store_partial_norms(uint32_t parameter_chunk, uint32_t finish);
  void emit_norm();
  void emit_end();
  uint32_t item_op(uint32_t item) const { return item == kStart ? kNone : op_of_item_[item]; }
  uint32_t store_op(uint32_t store) const {
    return store == kNone ? kNone : residency_.stores[store].op;
  }
  /// The update that a load of this chunk must wait for, or kNone.
  uint32_t update_before(ChunkId id) const {
    return id.space == Space::Weights ? last_update_[id.index] : kNone;
  }

  const ChunkTrace& chunk_trace_;
  const Layout& layout_;
  const PlanOptions& options_;
  Residency& residency_;
  Plan& plan_;
  std::vector<uint32_t> op_of_item_;
  std::vector<uint32_t> pending_load_;      // [chunk] the load that no item has waited for yet
  std::vector<uint32_t> last_drop_;         // [chunk]
  std::vector<uint32_t> assignment_order_;  // assignments by position
  std::vector<uint32_t> first_assignment_after_;  // [order of position] in assignment_order_
  size_t next_assignment_ = 0;
  std::vector<uint32_t> store_order_;  // stores by after_item
  size_t next_store_ = 0;
  std::vector<uint32_t> last_update_of_buffer_;
  std::vector<uint32_t>
      last_update_;                 // [parameter chunk] its deferred update, or that of this step
  std::vector<uint32_t> parts_stored_;  // [parameter chunk] gradient chunks stored
  uint32_t last_gradient_store_ = kNone;
  uint32_t norm_ = kNone;
};

}  // namespace ebb
