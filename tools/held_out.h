// Holds a share of the training samples out for the evaluation (--eval-split).
//
// The hash of its tokens decides whether a sample is held out. So the decision is the same in every
// run and after resuming, samples with equal tokens are on one side, and data that is appended does
// not move earlier samples. Reads all tokens once. No state.
#pragma once

#include <cstdint>
#include <vector>

#include "io/token_data.h"

namespace ebb {

/// Numbers of samples of `length` tokens, ascending.
struct SplitSamples {
  std::vector<uint64_t> training, held_out;
};

/// `share` is above 0 and below 1.
SplitSamples split_samples(const TokenData& tokens, uint64_t length, double share);

}  // namespace ebb
