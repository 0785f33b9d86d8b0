#include "tools/held_out.h"

#include <cmath>

#include "io/sampled_hash.h"

namespace ebb {
namespace {

constexpr uint64_t kSeed = 0x5a3d;  // other hashes of the same tokens are not related

}  // namespace

SplitSamples split_samples(const TokenData& tokens, uint64_t length, double share) {
  const auto limit = static_cast<uint64_t>(std::ldexp(share, 64));
  std::vector<int32_t> values(length);
  SplitSamples split;
  for (uint64_t sample = 0; sample < tokens.num_samples(length); ++sample) {
    tokens.read(sample * length, values);
    const bool is_held_out = hash_values(values, kSeed) < limit;
    (is_held_out ? split.held_out : split.training).push_back(sample);
  }
  return split;
}

}  // namespace ebb
