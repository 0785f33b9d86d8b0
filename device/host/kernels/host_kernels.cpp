#include "device/host/kernels/host_kernels.h"

#include "system/thread_team.h"

namespace ebb {

std::unique_ptr<Kernels> create_host_kernels(ThreadTeam& team, const Workspace& workspace,
                                             Arithmetic arithmetic) {
  return std::make_unique<HostKernels>(team, workspace, arithmetic);
}

}  // namespace ebb
