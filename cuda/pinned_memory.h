// Pinned host memory: whole pages near the GPU that are registered with CUDA.
//
// Sizes are rounded up to a page only. cudaMallocHost and caching allocators may round to powers of
// two, which would waste up to half of the memory. The device reads and writes the memory at the
// host's address. Thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

namespace ebb {

/// Allocates zero-filled pinned memory. `node`: the preferred NUMA node, -1 for any. Throws
/// OutOfMemory ("pinned") with the free memory of the cgroup and the limit of locked memory; throws
/// DeviceError.
std::byte* take_pinned(size_t bytes, int node, std::string_view tag);
/// Frees memory of take_pinned(). REQUIRES: no running copy uses it.
void release_pinned(std::byte* data, size_t bytes) noexcept;

/// Allocates whole pages of host memory that is not pinned. Throws OutOfMemory ("host").
std::byte* take_pageable(size_t bytes, std::string_view tag);
void release_pageable(std::byte* data, size_t bytes) noexcept;

/// The same near a NUMA node (-1: any), for memory that will be pinned as far as possible. Touches
/// all pages. `bytes`: whole pages. Throws OutOfMemory ("host").
std::byte* take_near(size_t bytes, int node, std::string_view tag);
/// Pins the whole pages [data, data + bytes). Returns false if the driver refuses.
[[nodiscard]] bool try_to_pin(std::byte* data, size_t bytes);
/// Reverses try_to_pin(). REQUIRES: try_to_pin() returned true; no running copy uses the pages.
void unpin(std::byte* data) noexcept;
size_t whole_pages(size_t bytes);

/// The operating system's number of the NUMA node to which a GPU is connected; -1 if it is unknown
/// or there is only one node.
int numa_node_of_gpu(int device);

}  // namespace ebb
