// A file of labels.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzz/fuzz.h"
#include "io/label_file.h"

namespace ebb::fuzz {
namespace {

constexpr uint32_t kVocabulary = 300;

void check(const LabelFile& file, Bytes input) {
  note_accepted();
  std::vector<int32_t> labels(file.num_labels());
  file.read(0, labels);
  const auto bytes = std::as_bytes(std::span(labels));
  require(std::ranges::equal(bytes, input), "the labels are those of the file");
  uint64_t num_targets = 0;
  for (const int32_t label : labels) {
    if (label == kIgnoredLabel) continue;
    require(label >= 0 && static_cast<uint32_t>(label) < kVocabulary,
            "labels are in the vocabulary");
    ++num_targets;
  }
  require(num_targets > 0, "labels that are all ignored are refused");
  require(num_targets == file.num_targets(), "targets are counted");
  const uint64_t half = labels.size() / 2;
  const uint64_t parts = file.num_targets(0, half) + file.num_targets(half, labels.size() - half);
  require(num_targets == parts, "targets of parts are counted");
}

}  // namespace

void test_input(Bytes input) {
  const std::string path = write_file("labels", input);
  for (const uint64_t num_tokens : {input.size() / sizeof(int32_t), size_t{8}}) {
    is_accepted([&] {
      const LabelFile file(path, num_tokens, kVocabulary);
      require(file.num_labels() == num_tokens, "each token has a label");
      check(file, input);
    });
  }
}

}  // namespace ebb::fuzz
