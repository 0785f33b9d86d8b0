// Memory that the GPU's driver and libraries take beside what a run allocates. The planner counts
// the host's part before it creates a device. Pure functions; sizes are bytes.
#pragma once

#include <algorithm>
#include <cstddef>

namespace ebb {

/// For each page of pinned host memory, the driver keeps a page table entry of 16 bytes
/// (nvidia_pte_t, which nvos_create_alloc() of NVIDIA's open kernel modules allocates) and a
/// pointer to the page (os_lock_user_pages()). The process has an entry of 8 bytes in its own page
/// table.
inline constexpr size_t kHostBytesOfPinnedPage = 16 + 8 + 8;
/// The GPU has an entry of 8 bytes in its page table, if pages are mapped one by one.
inline constexpr size_t kDeviceBytesOfPinnedPage = 8;
inline constexpr size_t kPinnedPageBytes = 4096;

/// Host memory of the process beside the plan on an H200, with cuBLASLt and cuDNN: 568 to 690 MiB
/// in four runs (bench/results/2026-11-27-h200.md: "the program" and "unexplained").
inline constexpr size_t kHostBytesOfLibraries = size_t{704} << 20;
/// Device memory for code that cuBLASLt and cuDNN load when it is first needed, and for other
/// programs. A default budget leaves it free. On an H200 a budget of all but 2.1 GiB was enough, so
/// this is an estimate: 400 MiB for code.
inline constexpr size_t kDeviceBytesOfLibraries = size_t{512} << 20;

constexpr size_t driver_host_bytes(size_t pinned_bytes) {
  return kHostBytesOfLibraries + pinned_bytes / kPinnedPageBytes * kHostBytesOfPinnedPage;
}

/// What a default budget leaves of the free device memory. `pinned_bytes`: as much as may be
/// pinned.
constexpr size_t device_margin_bytes(size_t free_bytes, size_t pinned_bytes) {
  const size_t needed =
      kDeviceBytesOfLibraries + pinned_bytes / kPinnedPageBytes * kDeviceBytesOfPinnedPage;
  return std::max(needed, free_bytes / 64);
}

}  // namespace ebb
