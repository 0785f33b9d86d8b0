// The part of NVTX that cuda/ calls, with a profiler that records the ranges. For tests. Names and
// meanings are those of NVIDIA's documentation. Thread-safe.
#pragma once

#include <cstdint>

// NOLINTBEGIN: the names are NVTX's

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE static_cast<uint16_t>(sizeof(nvtxEventAttributes_t))
#define NVTX_MESSAGE_TYPE_ASCII 1

struct nvtxDomainRegistration_st;
using nvtxDomainHandle_t = nvtxDomainRegistration_st*;

struct nvtxEventAttributes_t {
  uint16_t version, size;
  int32_t messageType;
  union {
    const char* ascii;
  } message;
};

/// Returns null if no profiler runs (Settings::is_profiled).
nvtxDomainHandle_t nvtxDomainCreateA(const char* name);
void nvtxDomainDestroy(nvtxDomainHandle_t domain);
int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes);
int nvtxDomainRangePop(nvtxDomainHandle_t domain);

// NOLINTEND
