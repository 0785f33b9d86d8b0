// Changes plans, for tests that check that the validator finds the damage. Indices in waits are
// adapted, so that they name the same operations as before.
#pragma once

#include <functional>
#include <optional>

#include "scheduler/plan/plan.h"

namespace ebb::test {

/// Is the operation a load: a copy of a chunk to the device?
inline bool is_load(const Op& op) { return op.kind == OpKind::Move && op.from == Tier::Host; }

using OpTest = std::function<bool(const Op&)>;
/// The index of the first operation from `from` on that passes the test; nullopt: none does.
std::optional<OpIndex> find_op(const Plan& plan, const OpTest& test, uint32_t from = 0);

/// Removes an operation. Operations that waited for it wait for what it waited for.
Plan without_op(const Plan& plan, OpIndex op);
/// Removes one wait of an operation.
Plan without_wait(const Plan& plan, OpIndex op, OpIndex wait);
/// Adds a wait. REQUIRES: `wait` < `op`.
Plan with_wait(const Plan& plan, OpIndex op, OpIndex wait);
/// Moves an operation before another one. Waits for operations that are not before it any more are
/// removed.
Plan with_op_before(const Plan& plan, OpIndex op, OpIndex before);
/// Repeats an operation directly after itself.
Plan with_op_twice(const Plan& plan, OpIndex op);

}  // namespace ebb::test
