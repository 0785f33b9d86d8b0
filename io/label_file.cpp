#include "io/label_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr uint64_t kScanLabels = uint64_t{1} << 20;

}  // namespace

LabelFile::LabelFile(const std::string& path, uint64_t num_tokens, uint64_t vocabulary)
    : path_(path), file_(path, "labels") {
  check_length(num_tokens);
  num_targets_ = count_and_check(vocabulary);
  if (num_targets_ > 0) return;
  throw ConfigError(fmt::format("labels '{}': all {} of them are {}, so there is nothing to learn",
                                path, num_labels(), kIgnoredLabel));
}

std::span<const int32_t> LabelFile::labels() const {
  return {reinterpret_cast<const int32_t*>(file_.bytes().data()),
          file_.bytes().size() / sizeof(int32_t)};
}

void LabelFile::check_length(uint64_t num_tokens) const {
  const uint64_t bytes = file_.bytes().size();
  if (bytes % sizeof(int32_t) != 0) {
    throw FormatError(path_, num_labels() * sizeof(int32_t),
                      fmt::format("the file ends within label {}: labels are int32, its {} bytes "
                                  "are no multiple of 4",
                                  num_labels(), bytes));
  }
  if (num_labels() == num_tokens) return;
  throw ConfigError(fmt::format(
      "labels '{}' has {} labels, the data has {} tokens: give one int32 a token, and {} bytes in "
      "all (no header)",
      path_, num_labels(), num_tokens, num_tokens * sizeof(int32_t)));
}

uint64_t LabelFile::count_and_check(uint64_t vocabulary) const {
  uint64_t num_targets = 0;
  for (uint64_t first = 0; first < num_labels(); first += kScanLabels) {
    const auto part = labels().subspan(first, std::min(kScanLabels, num_labels() - first));
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] == kIgnoredLabel) continue;
      ++num_targets;
      if (part[i] >= 0 && static_cast<uint32_t>(part[i]) < vocabulary) continue;
      throw FormatError(path_, (first + i) * sizeof(int32_t),
                        fmt::format("label {} is {}: allowed are 0 to {} (the model's vocabulary) "
                                    "and {} (ignored)",
                                    first + i, part[i], vocabulary - 1, kIgnoredLabel));
    }
    file_.release(first * sizeof(int32_t), part.size_bytes());
  }
  return num_targets;
}

uint64_t LabelFile::num_targets(uint64_t first, uint64_t count) const {
  EBB_CHECK(first <= num_labels() && count <= num_labels() - first, "labels past the end");
  file_.check_size();
  const auto part = labels().subspan(first, count);
  const auto num_ignored = std::ranges::count(part, kIgnoredLabel);
  file_.release(first * sizeof(int32_t), part.size_bytes());
  return count - static_cast<uint64_t>(num_ignored);
}

void LabelFile::read(uint64_t first, std::span<int32_t> out) const {
  EBB_CHECK(first <= num_labels() && out.size() <= num_labels() - first, "labels past the end");
  file_.check_size();
  std::ranges::copy(labels().subspan(first, out.size()), out.begin());
  file_.release(first * sizeof(int32_t), out.size_bytes());
}

}  // namespace ebb
