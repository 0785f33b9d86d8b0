// The split master weight: an fp32 master, stored as the bf16 weight that the device computes with
// and a signed 16-bit low half.
//
//   weight = (x + 0x8000) >> 16           x: the bits of the master; rounds to nearest, ties away
//   low    = int16(x - (weight << 16))       from zero
//   x      = (weight << 16) + low         modulo 2^32
//
// With ties away from zero the low half always fits 16 bits. With ties to even it does not fit for
// 32,640 finite bit patterns.
//
// Finite values and Inf are exact in both directions. For the 65,536 finite bit patterns with a
// magnitude of 0x7f7f8000 or more (from 3.3961e38) the weight is Inf, but the master stays finite
// and exact. A NaN stays a NaN with its sign and upper payload: the weight is made quiet and low
// is 0. (The plain formula would turn NaNs with a large payload into zeros of the other sign, and
// some other NaNs into Inf.)
//
// Pure functions.
#pragma once

#include <cstdint>

namespace ebb {

struct SplitMaster {
  uint16_t weight;  ///< bits of the bf16
  int16_t low;
};

constexpr SplitMaster split_master(uint32_t master) {
  if ((master & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((master >> 16) | 0x40u), 0};
  }
  const uint32_t weight = (master + 0x8000u) >> 16;
  return {static_cast<uint16_t>(weight), static_cast<int16_t>(master - (weight << 16))};
}

constexpr uint32_t join_master(SplitMaster split) {
  return (uint32_t{split.weight} << 16) + static_cast<uint32_t>(int32_t{split.low});
}

}  // namespace ebb
