#include "cuda/pinned_memory.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string>

#include "cuda/cuda_error.h"
#include "device/errors.h"
#include "system/memory_limits.h"
#include "system/pages.h"

namespace ebb {
namespace {

constexpr int kPreferNode = 1;  // MPOL_PREFERRED of <linux/mempolicy.h>
constexpr int kMostNodes = 64;

/// Asks the system to take the pages of this range from `node` if the node has free pages. Errors
/// are ignored.
void prefer_node(std::byte* data, size_t bytes, int node) {
  if (node < 0 || node >= kMostNodes) return;
  const unsigned long nodes = 1ul << node;
  syscall(SYS_mbind, data, bytes, kPreferNode, &nodes, kMostNodes + 1ul, 0u);
}

std::string memlock_text() {
  const auto limit = read_memory_limits().memlock_bytes;
  return limit ? "ulimit -l allows " + format_bytes(*limit) + " to be locked; raise it"
               : "ulimit -l is unlimited, so it is the driver that refuses";
}

cudaError_t pin_pages(std::byte* data, size_t bytes) {
  const cudaError_t status =
      cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status;
}

void register_pages(std::byte* data, size_t bytes, std::string_view tag) {
  const cudaError_t status = pin_pages(data, bytes);
  if (status == cudaSuccess) return;
  throw OutOfMemory(
      "pinned", bytes, 0, read_memory_limits().usable_bytes(), std::string(tag),
      std::string("cudaHostRegister says ") + cudaGetErrorName(status) + "; " + memlock_text());
}

}  // namespace

size_t whole_pages(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

std::byte* take_near(size_t bytes, int node, std::string_view tag) {
  std::byte* data = reserve_addresses(bytes);
  try {
    commit_memory(data, bytes, tag);
    prefer_node(data, bytes, node);
    touch_pages(data, bytes);
  } catch (...) {
    release_addresses(data, bytes);
    throw;
  }
  return data;
}

bool try_to_pin(std::byte* data, size_t bytes) { return pin_pages(data, bytes) == cudaSuccess; }

void unpin(std::byte* data) noexcept { (void)cudaHostUnregister(data); }

std::byte* take_pinned(size_t bytes, int node, std::string_view tag) {
  const size_t all_bytes = whole_pages(bytes);
  std::byte* data = take_near(all_bytes, node, tag);
  try {
    register_pages(data, all_bytes, tag);
  } catch (...) {
    release_addresses(data, all_bytes);
    throw;
  }
  return data;
}

void release_pinned(std::byte* data, size_t bytes) noexcept {
  unpin(data);
  release_pageable(data, bytes);
}

std::byte* take_pageable(size_t bytes, std::string_view tag) {
  return take_near(whole_pages(bytes), -1, tag);
}

void release_pageable(std::byte* data, size_t bytes) noexcept {
  announce_write(data, bytes);
  release_addresses(data, whole_pages(bytes));
}

int numa_node_of_gpu(int device) {
  char id[32] = {};
  if (cudaDeviceGetPCIBusId(id, sizeof id, device) != cudaSuccess) {
    (void)cudaGetLastError();
    return -1;
  }
  std::string name = id;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  int node = -1;
  std::ifstream("/sys/bus/pci/devices/" + name + "/numa_node") >> node;
  return node;
}

}  // namespace ebb
