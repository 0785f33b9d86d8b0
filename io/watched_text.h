// An input iterator over a text that reports how far it was read. The callbacks and some exceptions
// of nlohmann's parser contain no position.
#pragma once

#include <cstddef>
#include <iterator>

namespace ebb {

class WatchedText {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  /// Each increment stores the new position in `*seen`.
  WatchedText(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  WatchedText& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  WatchedText operator++(int) {
    const WatchedText before = *this;
    ++*this;
    return before;
  }
  bool operator==(const WatchedText& other) const { return at_ == other.at_; }
  bool operator!=(const WatchedText& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

}  // namespace ebb
