// One operation of a small run fails. The tests expect the right exception, no hang, and no memory
// that stays allocated.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace ebb::test {

/// Returns the number of operations of one kind in a run without faults.
uint64_t num_operations(FaultSite site, DeviceKind kind = DeviceKind::Host);
/// Fails the n-th operation, counted from 0, and checks the exception and the memory in use.
void fail_operation(FaultSite site, uint64_t n, DeviceKind kind = DeviceKind::Host);
/// Fails `most` operations, evenly spread, one per run; fails all if there are fewer.
void fail_operations(FaultSite site, uint64_t most, DeviceKind kind = DeviceKind::Host);
/// Fails each operation of an evaluation, one per run: the evaluation leaves the state unchanged.
void fail_evaluations(FaultSite site);
/// Fails each launch of a step whose updates wait for the norm, one per run. The trainer then
/// refuses every further step, and a state that is only partly updated stays invalid.
void fail_steps_twice();

}  // namespace ebb::test
