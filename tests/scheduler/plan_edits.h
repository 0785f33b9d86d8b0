// Damage to plans, for tests that want it found. Indices in waits follow the operations they name.
#pragma once

#include <functional>
#include <optional>

#include "scheduler/plan/plan.h"

namespace ebb::test {

using OpTest = std::function<bool(const Op&)>;
std::optional<uint32_t> find_op(const Plan& plan, const OpTest& test, uint32_t from = 0);

/// Who waited for the operation waits for what it waited for.
Plan without_op(const Plan& plan, uint32_t op);
Plan without_wait(const Plan& plan, uint32_t op, uint32_t wait);
/// The operation comes before another; waits for what is not before it any more are lost.
Plan with_op_before(const Plan& plan, uint32_t op, uint32_t before);
Plan with_op_twice(const Plan& plan, uint32_t op);

}  // namespace ebb::test
