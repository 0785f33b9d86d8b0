// Runs the fuzz target with each file of a corpus and with a fixed number of changed files. It is
// part of the fast tests and needs no libFuzzer. The inputs are always the same.
//
// Usage: test_fuzz_safetensors CORPUS [NUMBER]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "device/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Corpus = std::vector<std::string>;

// Inputs that break parsers: numbers at the ends of their ranges, and parts of the format.
const char* const kPieces[] = {"0",
                               "1",
                               "-1",
                               "18446744073709551615",
                               "4294967296",
                               "9223372036854775808",
                               "1e400",
                               "null",
                               "[",
                               "]",
                               "{",
                               "}",
                               "\"",
                               ",",
                               ":",
                               "\\u0000",
                               "\"F32\"",
                               "\"BF16\"",
                               "\"I64\"",
                               "\"dtype\"",
                               "\"shape\"",
                               "\"data_offsets\"",
                               "\"__metadata__\"",
                               "[0,4]"};

Corpus read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry);
  std::sort(paths.begin(), paths.end());
  Corpus corpus;
  for (const auto& path : paths) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    corpus.push_back(text.str());
  }
  return corpus;
}

class Mutations {
 public:
  explicit Mutations(const Corpus& corpus) : corpus_(corpus) {}

  std::string next() {
    std::string input = corpus_[below(corpus_.size())];
    const bool right_length = below(4) != 0;
    uint64_t header = 0;
    if (input.size() >= 8) std::memcpy(&header, input.data(), 8);
    const size_t before = input.size();
    for (uint64_t i = below(4) + 1; i > 0; --i) change(input);
    // With a wrong header size most inputs would fail at the first check.
    if (right_length && input.size() >= 8) {
      header += input.size() - before;
      std::memcpy(input.data(), &header, 8);
    }
    return input;
  }

 private:
  uint64_t below(uint64_t limit) {
    const auto words = ebb::philox4x32(counter_++, 0, 1);
    return limit == 0 ? 0 : (words[0] | uint64_t{words[1]} << 32) % limit;
  }

  void change(std::string& input) {
    const size_t at = below(input.size() + 1);
    const size_t count = std::min<size_t>(below(16) + 1, input.size() - at);
    const std::string& other = corpus_[below(corpus_.size())];
    switch (below(6)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(below(256));
        return;
      case 2:
        input.erase(at, count);
        return;
      case 3:
        input.replace(at, below(2) * count, kPieces[below(std::size(kPieces))]);
        return;
      case 4:
        input.insert(at, other, below(other.size()), below(40));
        return;
      default:
        input.insert(at, input.substr(at, count));
    }
  }

  const Corpus& corpus_;
  uint64_t counter_ = 0;
};

void feed(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "Usage: %s CORPUS [NUMBER]\n", argv[0]), 2;
  const Corpus corpus = read_corpus(argv[1]);
  if (corpus.empty()) return std::fprintf(stderr, "'%s' is empty\n", argv[1]), 1;
  for (const std::string& input : corpus) feed(input);
  const long number = argc > 2 ? std::atol(argv[2]) : 100'000;
  Mutations mutations(corpus);
  for (long i = 0; i < number; ++i) feed(mutations.next());
  std::printf("%zu files, %ld changes\n", corpus.size(), number);
}
