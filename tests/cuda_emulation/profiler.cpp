#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "device/errors.h"
#include "tests/cuda_emulation/emulated_device.h"

struct nvtxDomainRegistration_st {};

namespace ebb::emulation {
namespace {

std::mutex mutex;
std::vector<std::string> requested;  // in the order in which they began
thread_local int depth = 0;

}  // namespace

std::vector<std::string> take_profile() {
  std::lock_guard lock(mutex);
  return std::exchange(requested, {});
}

int num_open_ranges() { return depth; }

}  // namespace ebb::emulation

using namespace ebb::emulation;

nvtxDomainHandle_t nvtxDomainCreateA(const char* name) {
  EBB_CHECK(std::strcmp(name, "ebb") == 0, "a domain of another name");
  return settings().is_profiled ? std::make_unique<nvtxDomainRegistration_st>().release() : nullptr;
}

void nvtxDomainDestroy(nvtxDomainHandle_t domain) {
  EBB_CHECK(domain != nullptr, "there is no domain");
  const std::unique_ptr<nvtxDomainRegistration_st> owned(domain);
}

int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  EBB_CHECK(domain != nullptr, "there is no domain");
  EBB_CHECK(attributes->version == NVTX_VERSION &&
                attributes->size == NVTX_EVENT_ATTRIB_STRUCT_SIZE &&
                attributes->messageType == NVTX_MESSAGE_TYPE_ASCII,
            "a profiler cannot read these attributes");
  std::lock_guard lock(mutex);
  requested.emplace_back(attributes->message.ascii);
  return depth++;
}

int nvtxDomainRangePop(nvtxDomainHandle_t domain) {
  EBB_CHECK(domain != nullptr, "there is no domain");
  EBB_CHECK(depth > 0, "this thread has no range that could end");
  return --depth;
}
