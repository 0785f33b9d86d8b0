// A hash of a long file's values: of their number, and of 64 blocks of 4 KiB that are spread evenly
// over them. Files of up to 256 KiB are hashed as a whole. A change between the blocks of a
// large file is not noticed.
//
// Thread-safe; no state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ebb {

/// XXH64.
uint64_t hash_values(std::span<const int32_t> values, uint64_t seed);

/// `read(first, out)` reads the values [first, first + out.size()). `count`: of all values.
template <class Read>
uint64_t sampled_hash(uint64_t count, uint64_t seed, const Read& read) {
  constexpr uint64_t kBlocks = 64, kBlockValues = 1024;  // 4 KiB
  std::vector<int32_t> values(std::min(count, kBlockValues));
  const uint64_t last = count - values.size();
  // The positions of the blocks depend only on `count`. The blocks of small files adjoin or
  // overlap.
  uint64_t hash = seed ^ count;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    // i * last could overflow.
    read(last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1), std::span(values));
    hash = hash_values(values, hash);
  }
  return hash;
}

}  // namespace ebb
