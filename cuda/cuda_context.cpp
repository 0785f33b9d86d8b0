#include "cuda/cuda_context.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/cuda_error.h"
#include "cuda/home_memory.h"
#include "cuda/pinned_memory.h"
#include "system/clock.h"

namespace ebb {
namespace {

constexpr double kAnchorAgeS =
    5;  // up to this age, 32-bit milliseconds are exact to half a microsecond
constexpr int kAnchorTries = 5;

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

/// Called first, because other calls would make a context on GPU 0.
int use_gpu(int device) {
  EBB_CUDA(cudaSetDevice(device), "using GPU " + std::to_string(device));
  return device;
}

}  // namespace

Flags::~Flags() {
  for (std::byte* slab : slabs_) release_pinned(slab, kSlabBytes);
}

void Flags::add_slab() {
  constexpr size_t kCount = kSlabBytes / sizeof(uint32_t);
  free_.reserve(kCount * (slabs_.size() + 1));
  slabs_.reserve(slabs_.size() + 1);
  std::byte* slab = take_pinned(kSlabBytes, node_, "flags of events");
  slabs_.push_back(slab);
  for (size_t i = kCount; i-- > 0;) free_.push_back(reinterpret_cast<uint32_t*>(slab) + i);
}

uint32_t* Flags::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) add_slab();
  uint32_t* flag = free_.back();
  free_.pop_back();
  *flag = 0;
  return flag;
}

void Flags::give_back(uint32_t* flag) noexcept {
  std::lock_guard lock(mutex_);
  free_.push_back(flag);  // does not allocate: capacity was reserved for all flags
}

GpuClock::GpuClock() {
  stream_ = make_stream();
  anchor_ = make_event();
  anchor();
}

/// Records the anchor several times, until a round trip is short. The last record is the anchor, so
/// its time is the middle of its own round trip.
void GpuClock::anchor() {
  double shortest_s = 1;
  for (int i = 0; i < kAnchorTries; ++i) {
    const double begin_s = steady_now_s();
    EBB_CUDA(cudaEventRecord(anchor_.get(), stream_.get()), "recording an event");
    EBB_CUDA(cudaEventSynchronize(anchor_.get()), "waiting for an event");
    const double end_s = steady_now_s();
    anchor_s_ = (begin_s + end_s) / 2;
    if (end_s - begin_s <= 1.25 * shortest_s && i > 0) return;
    shortest_s = std::min(shortest_s, end_s - begin_s);
  }
}

void GpuClock::refresh() {
  std::lock_guard lock(mutex_);
  if (steady_now_s() - anchor_s_ > kAnchorAgeS) anchor();
}

double GpuClock::time_s(cudaEvent_t event) const {
  std::lock_guard lock(mutex_);
  float milliseconds = 0;
  EBB_CUDA(cudaEventElapsedTime(&milliseconds, anchor_.get(), event), "reading an event's time");
  return anchor_s_ + 1e-3 * static_cast<double>(milliseconds);
}

PinnedDataError::PinnedDataError(int node)
    : error_(new (take_pinned(sizeof(DataError), node, "what kernels report")) DataError) {}

PinnedDataError::~PinnedDataError() {
  release_pinned(reinterpret_cast<std::byte*>(error_), sizeof(DataError));
}

CudaContext::CudaContext(const DeviceOptions& options)
    : device(use_gpu(options.cuda_index)),
      node(numa_node_of_gpu(device)),
      driver(load_driver()),
      faults(options.fault),
      flags(node),
      always_blocks_submitting_thread(is_set("EBB_BLOCK_SUBMITTING_THREAD")),
      data_error(node),
      home(std::make_unique<HomeMemory>(*this, options.profile.pinned_bytes,
                                        options.pinned_piece_bytes)) {}

CudaContext::~CudaContext() = default;

void CudaContext::enter() const { use_gpu(device); }

cudaError_t CudaContext::try_enter() const noexcept {
  const cudaError_t status = cudaSetDevice(device);
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status;
}

}  // namespace ebb
