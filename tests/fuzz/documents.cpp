// A file of document offsets.
#include <cstdint>
#include <cstring>
#include <vector>

#include "fuzz/fuzz.h"
#include "io/document_file.h"

namespace ebb::fuzz {
namespace {

constexpr uint64_t kTokens = 1000;

/// For each token of the data the first token of its document, from the offsets themselves.
std::vector<int64_t> first_tokens(Bytes input) {
  std::vector<int64_t> firsts(kTokens, 0);
  for (size_t at = 0; at + sizeof(int64_t) <= input.size(); at += sizeof(int64_t)) {
    int64_t offset;
    std::memcpy(&offset, input.data() + at, sizeof offset);
    for (uint64_t i = static_cast<uint64_t>(offset); i < kTokens; ++i) firsts[i] = offset;
  }
  return firsts;
}

void check(const DocumentFile& file, Bytes input) {
  note_accepted();
  const std::vector<int64_t> firsts = first_tokens(input);
  uint64_t num_documents = 1;
  for (size_t i = 1; i < kTokens; ++i) num_documents += firsts[i] != firsts[i - 1];
  require(file.num_documents() == num_documents, "documents are counted");
  constexpr uint64_t kRow = 100;
  std::vector<int32_t> starts(kRow);
  for (uint64_t first = 0; first < kTokens; first += kRow) {
    file.read_starts(first, starts);
    for (uint64_t i = 0; i < kRow; ++i) {
      const int64_t start = firsts[first + i] - static_cast<int64_t>(first);
      require(starts[i] == (start < 0 ? 0 : start), "documents begin where the file says");
    }
  }
}

}  // namespace

void test_input(Bytes input) {
  const std::string path = write_file("documents", input);
  is_accepted([&] { check(DocumentFile(path, kTokens), input); });
}

}  // namespace ebb::fuzz
