// Helpers for tests in which a CUDA call fails: count the calls of a run, and let one of them fail.
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

/// During its lifetime, the n-th call of that name, counted from 0, fails.
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

  /// False if the run made fewer calls. The number of calls of the clock varies from run to run.
  bool happened() const { return count_ > n_; }

 private:
  const uint64_t n_;
  std::atomic<uint64_t> count_ = 0;
};

/// Counts the calls of a run that can fail, by name.
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

/// At most `most` indices below `count`: the first, the last, and others evenly between them.
inline std::set<uint64_t> some_of(uint64_t count, uint64_t most) {
  std::set<uint64_t> chosen = {count - 1};
  for (uint64_t i = 0; i + 1 < most; ++i) chosen.insert(i * count / (most - 1));
  while (*chosen.rbegin() >= count) chosen.erase(*chosen.rbegin());
  return chosen;
}

/// Does the error name the call that failed? A launch is named by its kernel.
inline bool names_call(std::string_view error, std::string_view call) {
  if (call == "cudaLaunchKernelEx") return error.find("launch") != std::string_view::npos;
  return error.find(call) != std::string_view::npos;
}

/// Calls that are made only for the times in reports. A run continues if they fail.
inline bool may_be_refused_in_silence(std::string_view call) {
  return call == "cudaEventQuery" || call == "cudaEventElapsedTime" || call == "cudaEventRecord" ||
         call == "cudaSetDevice";
}

}  // namespace ebb::test
