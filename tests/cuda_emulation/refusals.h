// Drills with calls of CUDA that are refused: how many a run makes, and one that fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "tests/cuda_emulation/emulated_device.h"

namespace ebb::test {

/// While it lives, the n-th call of that name, from 0, is refused.
class Refusal {
 public:
  Refusal(std::string call, uint64_t n) : n_(n) {
    emulation::settings().refuses = [this, call = std::move(call)](std::string_view asked) {
      return asked == call && count_.fetch_add(1) == n_;
    };
  }
  ~Refusal() { emulation::settings().refuses = {}; }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;

  /// Some calls are made once more or less from run to run, as time goes by: the clock's.
  bool happened() const { return count_ > n_; }

 private:
  const uint64_t n_;
  std::atomic<uint64_t> count_ = 0;
};

/// How often each call that may be refused is made.
template <class Run>
std::map<std::string, uint64_t> count_calls(const Run& run) {
  std::mutex mutex;
  std::map<std::string, uint64_t> calls;
  emulation::settings().refuses = [&](std::string_view call) {
    std::lock_guard lock(mutex);
    ++calls[std::string(call)];
    return false;
  };
  run();
  emulation::settings().refuses = {};
  return calls;
}

/// The first and the last of `count`, and others evenly between: at most `most` in all.
inline std::set<uint64_t> some_of(uint64_t count, uint64_t most) {
  std::set<uint64_t> chosen = {count - 1};
  for (uint64_t i = 0; i + 1 < most; ++i) chosen.insert(i * count / (most - 1));
  while (*chosen.rbegin() >= count) chosen.erase(*chosen.rbegin());
  return chosen;
}

/// Calls made for the times in reports alone, that go on without.
inline bool may_be_refused_in_silence(std::string_view call) {
  return call == "cudaEventQuery" || call == "cudaEventElapsedTime" || call == "cudaEventRecord" ||
         call == "cudaSetDevice";
}

}  // namespace ebb::test
