// Host memory of MemoryKind::Home: pinned from its beginning as far as that may be, else reached
// through rings of pinned slots.
//
// What may be pinned is `limit_bytes` in all (buffers, homes and rings; not the megabyte that
// events take), and what the driver registers: where it refuses, less is tried. A home is pinned in
// pieces of `piece_bytes`, as a driver may refuse a call for more than it registers in several; a
// copy is cut where a piece ends, as CUDA copies within one registration alone. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "cuda/failures.h"
#include "cuda/staging_ring.h"

namespace ebb {

class HomeMemory {
 public:
  /// REQUIRES: `context` outlives it. Throws ConfigError where the limit is too low for any copy.
  /// `piece_bytes`: whole pages.
  HomeMemory(CudaContext& context, size_t limit_bytes, size_t piece_bytes);
  ~HomeMemory();

  /// Zero-filled, near the GPU. Throws OutOfMemory where the machine or its cgroup has too little,
  /// or not even the smallest rings can be pinned.
  std::byte* take(size_t bytes, std::string_view tag);
  /// Waits for the rings, which may be at a copy of it that was broken off.
  void release(std::byte* data) noexcept;

  /// Counts a buffer that is pinned whole. Throws OutOfMemory where the limit would be passed.
  void count_pinned(size_t bytes, std::string_view tag);
  void uncount_pinned(size_t bytes) noexcept;
  size_t pinned_bytes() const;
  /// Of homes, what is not pinned.
  size_t staged_bytes() const;
  /// Some of them as the driver refused, and not for the limit.
  bool pinning_refused() const;

  /// A copy that may touch home memory on its host side: pinned parts go straight, the others
  /// through a ring. Throws DeviceError.
  void copy(cudaStream_t stream, StreamPoint& point, std::byte* to, const std::byte* from,
            size_t bytes, cudaMemcpyKind kind);

 private:
  struct Range {
    size_t bytes = 0;         // whole pages
    size_t pinned_bytes = 0;  // from the beginning on, in pieces, of which the last may be less
  };

  /// How many of the bytes from `memory` on are alike: in one pinned piece, or in what is not.
  size_t alike(const std::byte* memory, size_t bytes, bool& pinned) const;
  size_t room() const;
  void wait_for_rings() noexcept;
  void make_rings();
  bool try_rings(size_t slot_bytes);
  void pin(std::byte* data, Range& range);
  bool pin_up_to(std::byte* data, Range& range, size_t end);
  void pin_most(std::byte* data, Range& range);
  void unpin_from(std::byte* data, Range& range, size_t begin) noexcept;

  CudaContext& context_;
  const size_t limit_bytes_, piece_bytes_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;
  size_t pinned_bytes_ = 0;
  size_t staged_bytes_ = 0;
  bool pinning_refused_ = false;
  std::unique_ptr<StagingRing> load_, store_;
};

}  // namespace ebb
