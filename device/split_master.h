// The split master weight: an fp32 value kept as the bf16 that the device computes with and a
// signed 16-bit remainder.
//
//   weight = (x + 0x8000) >> 16           x = bits of the master; rounds to nearest, ties away from
//   zero low    = int16(x - (weight << 16)) x      = (weight << 16) + low         modulo 2^32
//
// With ties away from zero the remainder fits 16 bits always; with ties to even 32,640 finite
// patterns have none.
//   finite, Inf  exact both ways. The 65,536 finite patterns with a magnitude of 0x7f7f8000 or more
//   (3.3961e38 and up)
//                show the device a weight of Inf; the master itself stays finite and exact.
//   NaN          stays NaN, with its sign and upper payload: weight is made quiet, low is 0. (The
//   plain formula
//                would turn NaNs with a large payload into zeros of the other sign, and some others
//                into Inf.)
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
