// A set of numbers below a fixed size that knows its greatest: a tree of bits, 64 to a word.
// Insertion, erasure and the greatest touch one word a level (three for 262,144 numbers). A plain
// value.
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
    uint32_t rank = 0;
    for (size_t level = levels_.size(); level-- > 0;) {
      const auto highest = static_cast<uint32_t>(std::bit_width(levels_[level][rank]) - 1);
      rank = rank * 64 + highest;
    }
    return rank;
  }

  void insert(uint32_t rank) {
    for (auto& words : levels_) {
      const uint64_t before = words[rank / 64];
      words[rank / 64] = before | bit(rank);
      if (before != 0) return;  // the levels above know
      rank /= 64;
    }
  }

  void erase(uint32_t rank) {
    for (auto& words : levels_) {
      words[rank / 64] &= ~bit(rank);
      if (words[rank / 64] != 0) return;
      rank /= 64;
    }
  }

 private:
  static uint64_t bit(uint32_t rank) { return uint64_t{1} << (rank % 64); }

  std::vector<std::vector<uint64_t>> levels_;  // the numbers first; above, which words are not 0
};

}  // namespace ebb
