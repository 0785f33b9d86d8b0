// One operation of a small run fails: the right error comes out, nothing hangs, nothing is left
// behind.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace ebb::test {

/// Operations of one kind that the drill's run asks for when none fails.
uint64_t num_operations(FaultSite site, DeviceKind kind = DeviceKind::Host);
/// Fails the n-th one, from 0, and checks what follows.
void fail_operation(FaultSite site, uint64_t n, DeviceKind kind = DeviceKind::Host);
/// Fails `most` of them, evenly spread, or all where there are fewer.
void fail_operations(FaultSite site, uint64_t most, DeviceKind kind = DeviceKind::Host);
/// Fails each operation of an evaluation in turn: the state is that before it.
void fail_evaluations(FaultSite site);
/// Fails each launch of a step whose updates wait for the norm: no other step can follow, and
/// trying one makes no state whole that was half updated.
void fail_steps_twice();

}  // namespace ebb::test
