#include "io/sampled_hash.h"

#include <xxhash.h>

namespace ebb {

uint64_t hash_values(std::span<const int32_t> values, uint64_t seed) {
  return XXH64(values.data(), values.size_bytes(), seed);
}

}  // namespace ebb
