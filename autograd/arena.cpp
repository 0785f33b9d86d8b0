#include "autograd/arena.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"

namespace ebb {

Arena::Arena(std::byte* base, size_t capacity, Observer observer)
    : base_(base), capacity_(capacity), observer_(std::move(observer)) {
  holes_.reserve(256);
  holes_.push_back({0, capacity_});
}

size_t Arena::allocate(size_t bytes) {
  const size_t size = padded_bytes(std::max<size_t>(bytes, 1));
  const auto hole = std::find_if(holes_.begin(), holes_.end(),
                                 [&](const Hole& h) { return h.last - h.first >= size; });
  if (hole == holes_.end()) {
    throw LogicError(
        fmt::format("the activation arena has no free range of {} ({} of {} are in use): the step "
                    "does not follow its trace",
                    format_bytes(bytes), format_bytes(live_), format_bytes(capacity_)));
  }
  const size_t offset = hole->first;
  hole->first += size;
  if (hole->first == hole->last) holes_.erase(hole);
  live_ += size;
  peak_ = std::max(peak_, offset + size);
  notify(ArenaEvent::Allocate, offset, size);
  return offset;
}

void Arena::release(size_t offset, size_t bytes) {
  const size_t size = padded_bytes(std::max<size_t>(bytes, 1));
  const size_t last = offset + size;
  auto next = std::lower_bound(holes_.begin(), holes_.end(), offset,
                               [](const Hole& h, size_t at) { return h.first < at; });
  EBB_CHECK((next == holes_.end() || last <= next->first) &&
                (next == holes_.begin() || std::prev(next)->last <= offset),
            "arena range released twice");
  const bool joins_next = next != holes_.end() && next->first == last;
  const bool joins_previous = next != holes_.begin() && std::prev(next)->last == offset;
  if (joins_previous && joins_next) {
    std::prev(next)->last = next->last;
    holes_.erase(next);
  } else if (joins_previous) {
    std::prev(next)->last = last;
  } else if (joins_next) {
    next->first = offset;
  } else {
    holes_.insert(next, {offset, last});
  }
  live_ -= size;
  notify(ArenaEvent::Release, offset, size);
}

}  // namespace ebb
