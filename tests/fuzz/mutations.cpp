// Feeds a fuzz target with each seed and with a fixed number of changed seeds. This needs no
// libFuzzer, so it is part of the fast tests. The inputs are always the same.
//
// Usage: test_fuzz_TARGET SEEDS DICTIONARY NUMBER
// If an input ends the program, the input is written to the file "test_fuzz_TARGET.crash" in the
// working directory.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "device/random.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Texts = std::vector<std::string>;

constexpr rlim_t kMostMemory = rlim_t{512} << 20;
constexpr size_t kMostBytes = size_t{64} << 10;

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Texts read_seeds(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry);
  std::ranges::sort(paths);
  Texts seeds;
  for (const auto& path : paths) seeds.push_back(content_of(path));
  return seeds;
}

/// Reads a dictionary of libFuzzer: lines "text" with the escapes \\, \" and \xNN.
Texts read_dictionary(const char* path) {
  Texts pieces;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('"')) continue;
    std::string& piece = pieces.emplace_back();
    for (size_t i = 1; i + 1 < line.size(); ++i) {
      if (line[i] == '\\' && line[++i] == 'x') {
        piece += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        piece += line[i];
      }
    }
  }
  return pieces;
}

class Mutations {
 public:
  Mutations(const Texts& seeds, const Texts& pieces) : seeds_(seeds), pieces_(pieces) {}

  std::string next() {
    std::string input = seeds_[below(seeds_.size())];
    for (uint64_t i = below(4) + 1; i > 0; --i) change(input);
    input.resize(std::min(input.size(), kMostBytes));
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
    const std::string& other = seeds_[below(seeds_.size())];
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
        input.replace(at, below(2) * count, pieces_[below(pieces_.size())]);
        return;
      case 4:
        input.insert(at, other, below(other.size()), below(40));
        return;
      default:
        input.insert(at, input.substr(at, count));
    }
  }

  const Texts& seeds_;
  const Texts& pieces_;
  uint64_t counter_ = 0;
};

std::string current;     // the input that the target has now
std::string crash_file;  // where it is kept if it ends the program
std::string crash_text;

void keep_input(int signal) {
  const int file = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const bool kept = file >= 0 && ::write(file, current.data(), current.size()) >= 0;
  if (kept && ::write(STDERR_FILENO, crash_text.data(), crash_text.size()) < 0) ::_exit(1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void feed(std::string input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
}

/// Larger allocations fail. The shadow memory of sanitizers needs more.
void limit_memory() {
#ifndef __SANITIZE_ADDRESS__
  const rlimit limit{kMostMemory, kMostMemory};
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) std::perror("setrlimit"), std::exit(1);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    return std::fprintf(stderr, "Usage: %s SEEDS DICTIONARY NUMBER\n", argv[0]), 2;
  }
  const Texts seeds = read_seeds(argv[1]), pieces = read_dictionary(argv[2]);
  if (seeds.empty() || pieces.empty()) {
    return std::fprintf(stderr, "'%s' or '%s' is empty\n", argv[1], argv[2]), 1;
  }
  crash_file = std::filesystem::path(argv[0]).filename().string() + ".crash";
  crash_text = "fuzz: the input is in the file '" + crash_file + "'\n";
  limit_memory();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, keep_input);
  for (const std::string& seed : seeds) feed(seed);
  ebb::fuzz::require(ebb::fuzz::num_accepted > 0, "a seed is accepted");
  Mutations mutations(seeds, pieces);
  const long number = std::atol(argv[3]);
  for (long i = 0; i < number; ++i) feed(mutations.next());
  std::printf("%zu seeds, %ld changed seeds; accepted %llu times\n", seeds.size(), number,
              static_cast<unsigned long long>(ebb::fuzz::num_accepted));
}
