// Finds labels that were not shifted.
//
// Label i must be the target at position i, that is token i+1. Many files of other tools contain
// the token at position i, because those tools shift when they train. A causal model would learn
// to repeat its input.
//
// Thread-safe. Errors: those of reading LabelFile and TokenData.
#pragma once

#include <cstdint>

#include "io/label_file.h"
#include "io/token_data.h"

namespace ebb {

/// How many of the labels that are not ignored equal a token. The last label is not counted: no
/// token follows it.
struct LabelMatches {
  uint64_t num_labels = 0;
  uint64_t own = 0;   ///< equal the token at their position
  uint64_t next = 0;  ///< equal the token at the next position

  /// At least 99 % equal their own token, and fewer the next one. In a text that repeats one token,
  /// both are equal.
  bool look_unshifted() const {
    return num_labels > 0 && own >= num_labels - num_labels / 100 && own > next;
  }
  /// Few labels could equal their own tokens by chance.
  bool are_unshifted() const { return num_labels >= kLeastLabels && look_unshifted(); }

  static constexpr uint64_t kLeastLabels = 100;
};

/// REQUIRES: a label for each token. Stops early when too many labels differ from their own tokens,
/// so that only files of unshifted labels are read to the end.
LabelMatches match_labels(const LabelFile& labels, const TokenData& tokens);

}  // namespace ebb
