// The activation arena: offsets in one address range, first fit from below.
//
// Work on one compute stream reuses memory in stream order, so a range may be handed out again as
// soon as its last user has been submitted. The same calls give the same offsets, on every device:
// the dry run measures the arena exactly. No allocation once its list of holes has grown. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ebb {

enum class ArenaEvent : uint8_t {
  Allocate,
  Release,
  Idle,  ///< nothing touches the range until it wakes: its content may wait elsewhere
  Needed,
};

/// What an array takes among others: each begins aligned.
constexpr size_t padded_bytes(size_t bytes) {
  constexpr size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class Arena {
 public:
  /// Told of everything that happens to a range, for the trace.
  using Observer = std::function<void(ArenaEvent event, size_t offset, size_t bytes)>;

  explicit Arena(std::byte* base, size_t capacity, Observer observer = {});

  std::byte* base() const { return base_; }
  size_t allocate(size_t bytes);
  void release(size_t offset, size_t bytes);
  void mark_idle(size_t offset, size_t bytes) { tell(ArenaEvent::Idle, offset, bytes); }
  void mark_needed(size_t offset, size_t bytes) { tell(ArenaEvent::Needed, offset, bytes); }
  /// One past the highest byte ever handed out.
  size_t peak_bytes() const { return peak_; }
  size_t live_bytes() const { return live_; }

 private:
  struct Hole {
    size_t first, last;
  };
  void tell(ArenaEvent event, size_t offset, size_t bytes) const {
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
