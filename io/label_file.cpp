#include "io/label_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "device/errors.h"
#include "io/sampled_hash.h"

namespace ebb {
namespace {

constexpr uint64_t kScanLabels = uint64_t{1} << 20;

}  // namespace

LabelFile::LabelFile(const std::string& path, uint64_t num_tokens, uint64_t vocabulary)
    : vocabulary_(vocabulary), file_(path, "labels") {
  check_length(num_tokens);
  num_targets_ = num_targets(0, num_labels());
  if (num_targets_ > 0) return;
  throw ConfigError(fmt::format("labels '{}': all {} of them are {}, so there is nothing to learn",
                                path, num_labels(), kIgnoredLabel));
}

void LabelFile::check_length(uint64_t num_tokens) const {
  const uint64_t bytes = file_.size();
  if (bytes % sizeof(int32_t) != 0) {
    throw FormatError(path(), num_labels() * sizeof(int32_t),
                      fmt::format("the file ends within label {}: labels are int32, its {} bytes "
                                  "are no multiple of 4",
                                  num_labels(), bytes));
  }
  if (num_labels() == num_tokens) return;
  throw ConfigError(fmt::format(
      "labels '{}' has {} labels, the data has {} tokens: give one int32 a token, and {} bytes in "
      "all (no header)",
      path(), num_labels(), num_tokens, num_tokens * sizeof(int32_t)));
}

uint64_t LabelFile::num_targets(uint64_t first, uint64_t count) const {
  uint64_t num_targets = 0;
  std::vector<int32_t> labels(std::min(kScanLabels, count));
  for (const uint64_t end = first + count; first < end; first += kScanLabels) {
    labels.resize(std::min(kScanLabels, end - first));
    read(first, labels);
    num_targets += labels.size() - static_cast<uint64_t>(std::ranges::count(labels, kIgnoredLabel));
  }
  return num_targets;
}

void LabelFile::read(uint64_t first, std::span<int32_t> out) const {
  EBB_CHECK(first <= num_labels() && out.size() <= num_labels() - first, "labels past the end");
  file_.read(first * sizeof(int32_t), std::as_writable_bytes(out));
  check(first, out);
}

uint64_t LabelFile::fingerprint() const {
  return sampled_hash(num_labels(), 0,
                      [this](uint64_t first, std::span<int32_t> out) { read(first, out); });
}

void LabelFile::check(uint64_t first, std::span<const int32_t> labels) const {
  const auto bad = std::ranges::find_if(labels, [this](int32_t label) {
    return label != kIgnoredLabel && (label < 0 || static_cast<uint64_t>(label) >= vocabulary_);
  });
  if (bad == labels.end()) return;
  const uint64_t at = first + static_cast<uint64_t>(bad - labels.begin());
  throw FormatError(path(), at * sizeof(int32_t),
                    fmt::format("label {} is {}: allowed are 0 to {} (the model's vocabulary) and "
                                "{} (ignored)",
                                at, *bad, vocabulary_ - 1, kIgnoredLabel));
}

}  // namespace ebb
