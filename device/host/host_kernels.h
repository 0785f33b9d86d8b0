// The host backend's kernels: the specification that a reader trusts. Each call checks its shapes,
// works out its Cost and submits one closure with Stream::call, so the same object serves the
// simulated device, which only counts.
#pragma once

#include <memory>

#include "device/arithmetic.h"
#include "device/host/parallel.h"
#include "device/kernels.h"
#include "device/workspace.h"

namespace ebb {

/// `team` and `workspace` must outlive the kernels. Several may exist; each serves one compute
/// stream. REQUIRES: this processor has what `arithmetic` needs, where the kernels are to run.
std::unique_ptr<Kernels> create_host_kernels(ThreadTeam& team, const Workspace& workspace,
                                             Arithmetic arithmetic);

}  // namespace ebb
