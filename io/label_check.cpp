#include "io/label_check.h"

#include <algorithm>
#include <span>
#include <vector>

#include "device/ignored_label.h"

namespace ebb {
namespace {

constexpr uint64_t kBlock = uint64_t{1} << 16;

/// `tokens` has one more element than `labels`.
void count(std::span<const int32_t> labels, std::span<const int32_t> tokens, LabelMatches& sum) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kIgnoredLabel) continue;
    ++sum.num_labels;
    sum.own += labels[i] == tokens[i];
    sum.next += labels[i] == tokens[i + 1];
  }
}

}  // namespace

LabelMatches match_labels(const LabelFile& labels, const TokenData& tokens) {
  const uint64_t end = tokens.num_tokens() - 1;
  const uint64_t most_others = labels.num_targets() / 100;
  LabelMatches matches;
  std::vector<int32_t> label_block(kBlock), token_block(kBlock + 1);
  for (uint64_t first = 0; first < end; first += kBlock) {
    const uint64_t size = std::min(kBlock, end - first);
    const auto some_labels = std::span(label_block).first(size);
    const auto some_tokens = std::span(token_block).first(size + 1);
    labels.read(first, some_labels);
    tokens.read(first, some_tokens);
    count(some_labels, some_tokens, matches);
    if (matches.num_labels - matches.own > most_others) break;
  }
  return matches;
}

}  // namespace ebb
