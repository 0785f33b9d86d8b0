#include "device/own_kernel.h"

#include <string>

namespace ebb {
namespace {

[[noreturn]] void refuse(const Cost& cost, const char* device, const char* function,
                         const char* other) {
  throw ConfigError(std::string(cost.name) + " has no kernel for " + device + ": write its run(" +
                    function + "), or use `device` " + other);
}

}  // namespace

size_t OwnKernel::workspace_bytes(const HostLaunch&) const {
  if (functions_->run_on_host == nullptr) refuse(check(), "the host", "ThreadTeam&", "cuda");
  return 0;
}

size_t OwnKernel::workspace_bytes(const GpuLaunch&) const {
  if (functions_->run_on_gpu == nullptr) refuse(check(), "a GPU", "GpuStream", "host");
  return 0;
}

}  // namespace ebb
