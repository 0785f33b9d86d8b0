#include "cuda/cuda_device.h"

#include <algorithm>
#include <string>

#include "cuda/attention_library.h"
#include "cuda/cuda_blocks.h"
#include "cuda/cuda_error.h"
#include "cuda/cuda_event.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_stream.h"
#include "cuda/gpus.h"
#include "cuda/home_memory.h"
#include "cuda/peer_memory.h"
#include "cuda/pinned_memory.h"
#include "cuda/setup_stream.h"
#include "device/driver_memory.h"
#include "device/errors.h"
#include "system/cores.h"
#include "system/memory_limits.h"
#include "system/pages.h"

namespace ebb {
namespace {

/// The requested budget, or the free memory less a margin. The context exists already.
size_t budget_of(const DeviceOptions& options) {
  if (options.memory_bytes != SIZE_MAX) return options.memory_bytes;
  size_t free_bytes = 0, total_bytes = 0;
  EBB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the GPU's free memory");
  const size_t most_pinned =
      std::min(options.profile.pinned_bytes, read_memory_limits().total_bytes);
  const size_t margin = device_margin_bytes(free_bytes, most_pinned);
  return free_bytes > margin ? free_bytes - margin : 0;
}

/// The name of the attention library; empty if only our own kernels are used.
std::string attention_by(const DeviceOptions& options) {
  const std::optional<AttentionKernels> requested = options.profile.attention;
  if (requested == AttentionKernels::Ebb) return {};
  const std::string name = attention_library_name();
  if (!name.empty() || !requested) return name;
  throw ConfigError(
      "attention by cuDNN was requested, but there is no libcudnn.so.9 of 9.11 or newer, or "
      "Ebb was built without its headers; add its folder to LD_LIBRARY_PATH, or use `attention` "
      "ebb");
}

DeviceInfo describe(const DeviceOptions& options) {
  const std::string library = attention_by(options);
  DeviceProfile profile = options.profile;
  if (profile.num_threads == 0) profile.num_threads = num_usable_cores();
  profile.attention = library.empty() ? AttentionKernels::Ebb : AttentionKernels::Cudnn;
  return {.profile = profile,
          .name = describe_gpu(options.cuda_index) +
                  (library.empty() ? "" : ", attention by " + library),
          .memory_bytes = budget_of(options)};
}

/// Returns the options after it has checked that Ebb runs on the GPU.
const DeviceOptions& checked(const DeviceOptions& options) {
  check_gpu(options.cuda_index);
  if (options.load_bytes_per_s > 0 || options.store_bytes_per_s > 0) {
    throw ConfigError("only the host device emulates a link; leave out `link`");
  }
  return options;
}

}  // namespace

CudaDevice::CudaDevice(const DeviceOptions& options)
    : context_(checked(options)),
      info_(describe(options)),
      poison_(options.poison),
      budget_(info_.memory_bytes),
      kernels_(create_cuda_kernels(workspace_, context_.data_error.get(),
                                   info_.profile.attention == AttentionKernels::Cudnn
                                       ? create_attention_library()
                                       : nullptr)) {}

CudaDevice::~CudaDevice() {
  (void)context_.try_enter();
  if (workspace_.data != nullptr) (void)cudaFree(workspace_.data);
}

std::byte* CudaDevice::take_device_memory(size_t bytes, std::string_view tag) {
  context_.enter();
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemory(
        "device", bytes, budget_.used_bytes() - bytes, budget_.limit_bytes(), std::string(tag),
        "the GPU has less free memory than the budget (nvidia-smi shows which programs "
        "use it); lower `device_memory`");
  }
  if (status != cudaSuccess) {
    throw_cuda_error(status, "cudaMalloc", "allocating " + format_bytes(bytes), __FILE__, __LINE__);
  }
  auto* memory = static_cast<std::byte*>(data);
  try {
    SetupStream(context_.device).fill(memory, 0, bytes);
  } catch (...) {
    (void)cudaFree(data);
    throw;
  }
  return memory;
}

std::byte* CudaDevice::take_pinned_memory(size_t bytes, std::string_view tag) {
  context_.enter();
  context_.home->count_pinned(whole_pages(bytes), tag);
  try {
    return take_pinned(bytes, context_.node, tag);
  } catch (...) {
    context_.home->uncount_pinned(whole_pages(bytes));
    throw;
  }
}

std::byte* CudaDevice::take(MemoryKind kind, size_t bytes, std::string_view tag) {
  switch (kind) {
    case MemoryKind::Device:
      return take_device_memory(bytes, tag);
    case MemoryKind::Pinned:
      return take_pinned_memory(bytes, tag);
    case MemoryKind::Pageable:
      return take_pageable(bytes, tag);
    case MemoryKind::Home:
      return context_.home->take(bytes, tag);
    case MemoryKind::Shared:
      break;
  }
  throw LogicError("unknown kind of memory");
}

Buffer CudaDevice::allocate(MemoryKind kind, size_t bytes, std::string_view tag) {
  context_.faults.check_allocation(name_of(kind), bytes, budget_, tag);
  if (kind == MemoryKind::Device) budget_.take(bytes, tag);
  try {
    std::byte* data = take(kind, bytes, tag);
    ++num_allocations_;
    return Buffer(this, kind, data, bytes);
  } catch (...) {
    if (kind == MemoryKind::Device) budget_.give_back(bytes);
    throw;
  }
}

Buffer CudaDevice::share(std::byte* memory, size_t bytes) {
  context_.home->take_shared(memory, bytes);
  return Buffer(this, MemoryKind::Shared, memory, bytes);
}

void CudaDevice::free(MemoryKind kind, std::byte* data, size_t bytes) noexcept {
  (void)context_.try_enter();  // otherwise this thread's first call would make a context on GPU 0
  switch (kind) {
    case MemoryKind::Device:
      (void)cudaFree(data);
      return budget_.give_back(bytes);
    case MemoryKind::Pinned:
      context_.home->uncount_pinned(whole_pages(bytes));
      return release_pinned(data, bytes);
    case MemoryKind::Pageable:
      return release_pageable(data, bytes);
    case MemoryKind::Home:
      return context_.home->release(data);
    case MemoryKind::Shared:
      return context_.home->release_shared(data);
  }
}

size_t CudaDevice::pinned_bytes() const { return context_.home->pinned_bytes(); }

size_t CudaDevice::staged_bytes() const { return context_.home->staged_bytes(); }

bool CudaDevice::pinning_refused() const { return context_.home->pinning_refused(); }

std::unique_ptr<Blocks> CudaDevice::create_blocks(size_t block_bytes, uint32_t num_blocks) {
  context_.faults.check_allocation("device", block_bytes * num_blocks, budget_, "blocks");
  context_.enter();
  auto blocks = std::make_unique<CudaBlocks>(context_.driver, context_.device, budget_, block_bytes,
                                             num_blocks, poison_);
  ++num_allocations_;
  return blocks;
}

void CudaDevice::reserve_workspace(size_t bytes) {
  if (bytes <= workspace_.bytes) return;
  context_.faults.check_allocation("device", bytes, budget_, "workspace");
  const size_t more = bytes - workspace_.bytes;
  budget_.take(more, "workspace");
  std::byte* data = nullptr;
  try {
    data = take_device_memory(bytes, "workspace");
  } catch (...) {
    budget_.give_back(more);
    throw;
  }
  if (workspace_.data != nullptr) (void)cudaFree(workspace_.data);
  workspace_ = {data, bytes};
  ++num_allocations_;
}

MemoryName CudaDevice::memory_name(const Buffer& buffer) {
  context_.enter();
  return name_of_gpu_memory(buffer.data(), context_.device);
}

std::shared_ptr<const std::byte> CudaDevice::open_memory(const MemoryName& name) {
  context_.enter();
  return open_gpu_memory(name, context_.device);
}

std::unique_ptr<Stream> CudaDevice::create_stream(StreamKind role) {
  context_.enter();
  switch (role) {
    case StreamKind::Update:
      return std::make_unique<CudaHostStream>(context_, "ebb update", kQueueOfUpdates);
    case StreamKind::Send:
      return std::make_unique<CudaHostStream>(context_, "ebb send");
    case StreamKind::Receive:
      return std::make_unique<CudaHostStream>(context_, "ebb receive");
    case StreamKind::Fetch:
      return std::make_unique<CudaHostStream>(context_, "ebb fetch");
    case StreamKind::Parts:
      return std::make_unique<CudaHostStream>(context_, "ebb parts");
    case StreamKind::Compute:
    case StreamKind::Load:
    case StreamKind::Store:
      break;
  }
  return std::make_unique<CudaStream>(context_, role);
}

std::unique_ptr<Event> CudaDevice::create_event() { return std::make_unique<CudaEvent>(context_); }

}  // namespace ebb
