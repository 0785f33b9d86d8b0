// The activation arena: offsets in one address range, first fit from below.
//
// All work runs on one compute stream, so a range may be allocated again as soon as the last work
// that uses it is submitted. The same sequence of allocations gives the same offsets on every
// device: the dry run measures the arena exactly. Host memory is allocated only while the list of
// holes grows. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ebb {

enum class ArenaEvent : uint8_t {
  Allocate,
  Release,
  Idle,    ///< nothing uses the range until Needed, so its content may leave the device
  Needed,  ///< the range is used again
};

/// The bytes that an array takes in the arena: each array begins at a multiple of 256.
constexpr size_t padded_bytes(size_t bytes) {
  constexpr size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class Arena {
 public:
  /// Called for everything that happens to a range. The dry run records it. For Allocate and
  /// Release, `bytes` contains the padding.
  using Observer = std::function<void(ArenaEvent event, size_t offset, size_t bytes)>;

  /// The addresses [base, base + capacity). The arena does not access this memory.
  explicit Arena(std::byte* base, size_t capacity, Observer observer = {});

  std::byte* base() const { return base_; }
  /// Returns the offset of a range of padded_bytes(bytes), or of 256 bytes for 0. Throws LogicError
  /// if no hole is large enough: the capacity is the peak of the dry run.
  size_t allocate(size_t bytes);
  /// REQUIRES: allocate(bytes) returned `offset`, and the range was not released since.
  void release(size_t offset, size_t bytes);
  void mark_idle(size_t offset, size_t bytes) { notify(ArenaEvent::Idle, offset, bytes); }
  void mark_needed(size_t offset, size_t bytes) { notify(ArenaEvent::Needed, offset, bytes); }
  /// The end of the highest range that was ever allocated.
  size_t peak_bytes() const { return peak_; }
  /// The bytes of all allocated ranges, with their padding.
  size_t live_bytes() const { return live_; }

 private:
  struct Hole {
    size_t first, last;
  };
  void notify(ArenaEvent event, size_t offset, size_t bytes) const {
    if (observer_) observer_(event, offset, bytes);
  }

  std::byte* base_;
  size_t capacity_;
  Observer observer_;
  std::vector<Hole> holes_;  // sorted, disjoint, never adjacent
  size_t peak_ = 0;
  size_t live_ = 0;
};

}  // namespace ebb
