// Host memory of MemoryKind::Home. As much of it as possible is pinned, from its beginning. Copies
// to and from the part that is not pinned pass through rings of staging buffers.
//
// At most `limit_bytes` are pinned in total (buffers, homes and rings; the flags of events are not
// counted). If the driver refuses to register memory, a smaller size is tried. A home is registered
// in pieces of `piece_bytes`, because a driver may refuse one large call but accept several small
// ones. A copy is cut at the end of a piece, because CUDA copies only within one registration.
// Thread-safe.
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
  /// `piece_bytes`: whole pages. REQUIRES: `context` outlives this object. Throws ConfigError if
  /// the limit is too low for any copy.
  HomeMemory(CudaContext& context, size_t limit_bytes, size_t piece_bytes);
  ~HomeMemory();

  /// Allocates zero-filled memory near the GPU. Throws OutOfMemory if the machine or its cgroup has
  /// too little memory, or if not even the smallest rings can be pinned.
  std::byte* take(size_t bytes, std::string_view tag);
  /// Frees memory of take(). Waits for the rings first: they may still run a copy of a stream that
  /// failed.
  void release(std::byte* data) noexcept;
  /// The same for memory that the caller allocates and frees. It begins with a page.
  void take_shared(std::byte* data, size_t bytes);
  void release_shared(std::byte* data) noexcept;

  /// Counts a buffer that is pinned completely. Throws OutOfMemory if the total would exceed the
  /// limit.
  void count_pinned(size_t bytes, std::string_view tag);
  void uncount_pinned(size_t bytes) noexcept;
  size_t pinned_bytes() const;
  /// Bytes of homes that are not pinned.
  size_t staged_bytes() const;
  /// Whether the driver refused to pin a part of a home or the rings. If false, the limit is the
  /// only reason for staged bytes.
  bool pinning_refused() const;

  /// What is left of a copy whose host side may be home memory.
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
    cudaMemcpyKind kind = cudaMemcpyDefault;
    bool is_in_ring = false;  ///< the part before went through a ring
  };
  /// Submits the next part of a copy, and removes it from `rest`. A pinned part is copied directly,
  /// another part through a ring. `point`: the position of the stream. Throws DeviceError.
  void copy_part(cudaStream_t stream, StreamPoint& point, Copy& rest);
  /// The most entries that the next part adds to CUDA's queue of its stream.
  uint64_t num_entries(const Copy& rest) const;

 private:
  struct Range {
    size_t bytes = 0;         // whole pages
    size_t pinned_bytes = 0;  // from the beginning, in pieces; the last piece may be smaller
  };

  /// How many of the `bytes` from `memory` on can be copied in one way: they are in one pinned
  /// piece, or in memory that is not pinned. `pinned` tells which.
  size_t alike(const std::byte* memory, size_t bytes, bool& pinned) const;
  /// The same for the host memory of a copy.
  size_t next_part(const Copy& rest, bool& pinned) const;
  size_t room() const;
  void wait_for_rings() noexcept;
  void add(std::byte* data, Range range);
  Range remove(std::byte* data) noexcept;
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
