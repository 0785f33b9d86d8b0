// Child processes of a test, one for each rank.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ebb::test {

class ChildRanks {
 public:
  explicit ChildRanks(uint32_t size);
  /// Kills those that still run.
  ~ChildRanks();
  ChildRanks(const ChildRanks&) = delete;
  ChildRanks& operator=(const ChildRanks&) = delete;

  /// Forks the processes. Each calls body(rank) and ends. Called once. REQUIRES: this process has
  /// one thread.
  void start(const std::function<void(uint32_t rank)>& body);
  /// For the body: says that its process has come so far.
  void set_ready(uint32_t rank) { reports_[rank].ready = 1; }
  /// Waits until all processes are ready.
  void wait_until_ready() const;
  void send(uint32_t rank, int signal) const;
  /// Waits for a process to end, for at most 20 s. Returns the message of the error that the body
  /// threw, "" for none, or how the process ended otherwise.
  std::string end_of(uint32_t rank);

 private:
  struct Report {
    std::atomic<uint32_t> ready;
    char error[1000];
  };
  const uint32_t size_;
  Report* const reports_;    // shared with the children
  std::vector<pid_t> pids_;  // 0: the process has ended
};

}  // namespace ebb::test
