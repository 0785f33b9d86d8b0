// Pinned host memory: whole pages of our own, registered with CUDA, near the GPU.
//
// Exactly the bytes asked for, rounded up to a page: cudaMallocHost's and caching allocators'
// rounding to powers of two would cost up to half of a home. The device reads and writes it at the
// host's address. Thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

namespace ebb {

/// Zero-filled. `node`: the NUMA node it should lie on, -1 where that does not matter. Throws
/// OutOfMemory ("pinned") with what the cgroup leaves and what may be locked; DeviceError.
std::byte* take_pinned(size_t bytes, int node, std::string_view tag);
/// REQUIRES: no copy that touches it is under way.
void release_pinned(std::byte* data, size_t bytes) noexcept;

/// Host memory that is not pinned, in whole pages too. Throws OutOfMemory ("host").
std::byte* take_pageable(size_t bytes, std::string_view tag);
void release_pageable(std::byte* data, size_t bytes) noexcept;

/// The same near a node, where check says that the machine and its cgroup have room: to be pinned
/// as far as that goes. `bytes`: whole pages. Throws OutOfMemory ("pinned").
std::byte* take_near(size_t bytes, int node, std::string_view tag);
/// Pins whole pages that begin at `data`; false where the driver refuses.
[[nodiscard]] bool try_to_pin(std::byte* data, size_t bytes);
/// REQUIRES: try_to_pin() did; no copy that touches them is under way.
void unpin(std::byte* data) noexcept;
size_t whole_pages(size_t bytes);

/// The NUMA node that a GPU hangs on, as the system numbers them; -1 where it is not known or there
/// is only one.
int numa_node_of_gpu(int device);

}  // namespace ebb
