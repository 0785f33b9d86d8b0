// The host backend's kernels: the specification that a reader trusts. Each call checks its shapes,
// works out its Cost and submits one closure with Stream::call, so the same object serves the
// simulated device, which only counts.
#pragma once

#include <cstddef>
#include <memory>

#include "device/arithmetic.h"
#include "device/host/parallel.h"
#include "device/kernels.h"

namespace ebb {

/// Scratch shared by the kernels of one compute stream. A kernel asks through
/// Cost::workspace_bytes.
struct Workspace {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// `team` and `workspace` must outlive the kernels. Several may exist; each serves one compute
/// stream. REQUIRES: this processor has what `arithmetic` needs, where the kernels are to run.
std::unique_ptr<Kernels> create_host_kernels(ThreadTeam& team, const Workspace& workspace,
                                             Arithmetic arithmetic);

}  // namespace ebb
