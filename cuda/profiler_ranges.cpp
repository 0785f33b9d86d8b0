#include "cuda/profiler_ranges.h"

#include <cstdio>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace ebb {

ProfilerRanges::ProfilerRanges() : domain_(nvtxDomainCreateA("ebb")) {}

ProfilerRanges::~ProfilerRanges() {
  if (domain_ != nullptr) nvtxDomainDestroy(domain_);
}

/// Names that are too long are cut.
void ProfilerRanges::push(const RangeName& name) const noexcept {
  char text[96];
  const auto length = [](std::string_view part) { return static_cast<int>(part.size()); };
  if (name.number < 0) {
    std::snprintf(text, sizeof text, "%.*s %.*s", length(name.what), name.what.data(),
                  length(name.name), name.name.data());
  } else {
    std::snprintf(text, sizeof text, "%.*s %.*s %lld", length(name.what), name.what.data(),
                  length(name.name), name.name.data(), static_cast<long long>(name.number));
  }
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text;
  nvtxDomainRangePushEx(domain_, &attributes);
}

void ProfilerRanges::pop() const noexcept { nvtxDomainRangePop(domain_); }

}  // namespace ebb

#else  // some installations of the toolkit have no NVTX

namespace ebb {

ProfilerRanges::ProfilerRanges() = default;
ProfilerRanges::~ProfilerRanges() = default;
void ProfilerRanges::push(const RangeName&) const noexcept {}
void ProfilerRanges::pop() const noexcept {}

}  // namespace ebb

#endif
