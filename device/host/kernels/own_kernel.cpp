#include "device/host/kernels/host_launch.h"

namespace ebb {

void OwnKernel::run(const HostLaunch& host) const { functions_->run_on_host(storage_, host.team); }

}  // namespace ebb
