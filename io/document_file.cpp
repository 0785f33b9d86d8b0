#include "io/document_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"

namespace ebb {

DocumentFile::DocumentFile(const std::string& path, uint64_t num_tokens)
    : path_(path), file_(path, "documents") {
  const uint64_t bytes = file_.bytes().size();
  if (bytes % sizeof(int64_t) != 0) {
    throw FormatError(path_, offsets().size_bytes(),
                      fmt::format("the file ends within offset {}: offsets are int64, its {} bytes "
                                  "are no multiple of 8",
                                  offsets().size(), bytes));
  }
  if (bytes == 0) {
    throw ConfigError(
        fmt::format("documents '{}' is empty: give the offset of each document's "
                    "first token as int64, the first is 0",
                    path_));
  }
  check(num_tokens);
  file_.release(0, bytes);
}

std::span<const int64_t> DocumentFile::offsets() const {
  return {reinterpret_cast<const int64_t*>(file_.bytes().data()),
          file_.bytes().size() / sizeof(int64_t)};
}

void DocumentFile::check(uint64_t num_tokens) const {
  int64_t before = -1;
  for (size_t i = 0; i < offsets().size(); ++i) {
    const int64_t offset = offsets()[i];
    if (offset <= before) {
      throw FormatError(path_, i * sizeof(int64_t),
                        i == 0 ? fmt::format("offset 0 is {}: it must be 0 or more", offset)
                               : fmt::format("offset {} is {} and the one before it {}: they must "
                                             "rise, as no document is empty",
                                             i, offset, before));
    }
    if (static_cast<uint64_t>(offset) >= num_tokens) {
      throw FormatError(path_, i * sizeof(int64_t),
                        fmt::format("offset {} is {}, but the data has {} tokens: offsets are "
                                    "where documents begin, counted in tokens",
                                    i, offset, num_tokens));
    }
    before = offset;
  }
}

uint64_t DocumentFile::num_documents() const {
  return offsets().size() + (offsets().front() > 0 ? 1 : 0);
}

void DocumentFile::read_starts(uint64_t first, std::span<int32_t> out) const {
  file_.check_size();
  auto next = std::ranges::upper_bound(offsets(), static_cast<int64_t>(first));
  int32_t start = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (next != offsets().end() && static_cast<uint64_t>(*next) == first + i) {
      start = static_cast<int32_t>(i);
      ++next;
    }
    out[i] = start;
  }
}

}  // namespace ebb
