// A set of numbers below a fixed size that finds its greatest element quickly: a tree of bits, 64
// to a word. insert(), erase() and greatest() touch one word on each level (three levels for
// 262,144 numbers). A plain value.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace ebb {

class IndexSet {
 public:
  explicit IndexSet(uint32_t size) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size, 0);
    } while (size > 1);
  }

  bool empty() const { return levels_.back().empty() || levels_.back()[0] == 0; }

  /// REQUIRES: not empty.
  uint32_t greatest() const {
    uint32_t index = 0;
    for (size_t level = levels_.size(); level-- > 0;) {
      const auto highest = static_cast<uint32_t>(std::bit_width(levels_[level][index]) - 1);
      index = index * 64 + highest;
    }
    return index;
  }

  void insert(uint32_t index) {
    for (auto& words : levels_) {
      const uint64_t before = words[index / 64];
      words[index / 64] = before | bit(index);
      if (before != 0) return;  // the levels above have this word already
      index /= 64;
    }
  }

  void erase(uint32_t index) {
    for (auto& words : levels_) {
      words[index / 64] &= ~bit(index);
      if (words[index / 64] != 0) return;
      index /= 64;
    }
  }

 private:
  static uint64_t bit(uint32_t index) { return uint64_t{1} << (index % 64); }

  std::vector<std::vector<uint64_t>> levels_;  // level 0: the numbers; above: which words are not 0
};

}  // namespace ebb
