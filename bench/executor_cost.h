// Measures the processor time of the executor on the program thread and on the copy thread.
//
// The steps of a plan are run by an Executor alone: for each call of the trace the program thread
// runs begin_call(), submits one kernel of the call's cost, and runs end_call(). So the program
// thread does not run model code, and its processor time between begin() and finish() is that of
// the executor's own functions and of the streams that they submit to. The copy thread runs
// nothing else in any case. Updates sleep for as long as they would take.
//
// Blocks are mapped by a wrapper that measures the processor time of each thread in map(), which is
// stated apart. The executor itself reads no clock: a reading takes 0.3 to 1 us on virtual
// machines, which is as much as the executor needs for many operations, and four readings for each
// call would take more than 0.1 % of a step. Two readings for each mapped block distort what is
// left by less than 0.1 us an operation.
#pragma once

#include "device/device.h"
#include "scheduler/search/preparation.h"

namespace ebb::bench {

/// Medians over some steps, of one thread.
struct ThreadCost {
  double own_s = 0;             ///< processor time of a step without mapping
  double map_s = 0;             ///< processor time of a step in map()
  uint32_t num_mapped = 0;      ///< blocks in a step
  uint32_t num_operations = 0;  ///< of the plan, those that this thread handles
};

struct ExecutorCost {
  ThreadCost program, copy;
};

/// `update_bytes_per_s`: how fast updates are; 0: they take no time.
ExecutorCost measure_executor(const Preparation& prepared, const DeviceOptions& device,
                              double update_bytes_per_s);

}  // namespace ebb::bench
