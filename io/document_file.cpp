#include "io/document_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr uint64_t kScanOffsets = uint64_t{1} << 17;

}  // namespace

DocumentFile::DocumentFile(const std::string& path, uint64_t num_tokens)
    : file_(path, "documents") {
  const uint64_t bytes = file_.size();
  if (bytes % sizeof(int64_t) != 0) {
    throw FormatError(path, num_offsets() * sizeof(int64_t),
                      fmt::format("the file ends within offset {}: offsets are int64, its {} bytes "
                                  "are no multiple of 8",
                                  num_offsets(), bytes));
  }
  if (bytes == 0) {
    throw ConfigError(
        fmt::format("documents '{}' is empty: give the offset of each document's "
                    "first token as int64, the first is 0",
                    path));
  }
  check(num_tokens);
}

std::vector<int64_t> DocumentFile::offsets(uint64_t first, uint64_t count) const {
  std::vector<int64_t> offsets(std::min(count, num_offsets() - first));
  file_.read(first * sizeof(int64_t), std::as_writable_bytes(std::span(offsets)));
  return offsets;
}

int64_t DocumentFile::offset(uint64_t i) const {
  int64_t offset = 0;
  file_.read(i * sizeof offset, std::as_writable_bytes(std::span(&offset, 1)));
  return offset;
}

void DocumentFile::check(uint64_t num_tokens) const {
  int64_t before = -1;
  for (uint64_t first = 0; first < num_offsets(); first += kScanOffsets) {
    uint64_t i = first;
    for (const int64_t offset : offsets(first, kScanOffsets)) {
      check(i++, offset, before, num_tokens);
      before = offset;
    }
  }
}

void DocumentFile::check(uint64_t i, int64_t offset, int64_t before, uint64_t num_tokens) const {
  if (offset <= before) {
    throw FormatError(path(), i * sizeof(int64_t),
                      i == 0 ? fmt::format("offset 0 is {}: it must be 0 or more", offset)
                             : fmt::format("offset {} is {} and the one before it {}: they must "
                                           "rise, as no document is empty",
                                           i, offset, before));
  }
  if (static_cast<uint64_t>(offset) >= num_tokens) {
    throw FormatError(path(), i * sizeof(int64_t),
                      fmt::format("offset {} is {}, but the data has {} tokens: offsets are "
                                  "where documents begin, counted in tokens",
                                  i, offset, num_tokens));
  }
}

uint64_t DocumentFile::num_documents() const {
  return num_offsets() + (first_offset() > 0 ? 1 : 0);
}

uint64_t DocumentFile::first_offset() const { return static_cast<uint64_t>(offset(0)); }

uint64_t DocumentFile::last_offset() const {
  return static_cast<uint64_t>(offset(num_offsets() - 1));
}

bool DocumentFile::has_offset(uint64_t token) const {
  const uint64_t above = first_above(token);
  return above > 0 && static_cast<uint64_t>(offset(above - 1)) == token;
}

/// The index of the first offset above `token`.
uint64_t DocumentFile::first_above(uint64_t token) const {
  uint64_t low = 0, high = num_offsets();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (offset(middle) > static_cast<int64_t>(token)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void DocumentFile::read_starts(uint64_t first, std::span<int32_t> out) const {
  const std::vector<int64_t> offsets = this->offsets(first_above(first), out.size());
  auto next = offsets.begin();
  int32_t start = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (next != offsets.end() && static_cast<uint64_t>(*next) == first + i) {
      start = static_cast<int32_t>(i);
      ++next;
    }
    out[i] = start;
  }
}

}  // namespace ebb
