#include "tests/comm/child_ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "system/clock.h"

namespace ebb::test {

// The memory stays mapped until the test program ends.
ChildRanks::ChildRanks(uint32_t size)
    : size_(size),
      reports_(static_cast<Report*>(mmap(nullptr, size * sizeof(Report), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}

void ChildRanks::start(const std::function<void(uint32_t rank)>& body) {
  for (uint32_t rank = 0; rank < size_; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("fork");
    if (pid == 0) {
      try {
        body(rank);
      } catch (const std::exception& error) {
        std::strncpy(reports_[rank].error, error.what(), sizeof reports_[rank].error - 1);
      }
      _exit(0);
    }
    pids_.push_back(pid);
  }
}

ChildRanks::~ChildRanks() {
  for (uint32_t rank = 0; rank < pids_.size(); ++rank) {
    if (pids_[rank] == 0) continue;
    send(rank, SIGKILL);
    waitpid(pids_[rank], nullptr, 0);
  }
}

void ChildRanks::wait_until_ready() const {
  for (uint32_t rank = 0; rank < pids_.size(); ++rank) {
    for (int i = 0; reports_[rank].ready == 0; ++i) {
      if (i == 20000) throw std::runtime_error("a child is not ready after 20 s");
      sleep_until(steady_now_s() + 0.001);
    }
  }
}

void ChildRanks::send(uint32_t rank, int signal) const { kill(pids_[rank], signal); }

std::string ChildRanks::end_of(uint32_t rank) {
  int status = 0;
  for (int i = 0; waitpid(pids_[rank], &status, WNOHANG) == 0; ++i) {
    if (i == 10000) return "still runs";
    sleep_until(steady_now_s() + 0.002);
  }
  pids_[rank] = 0;
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "exit " + std::to_string(WEXITSTATUS(status));
  return reports_[rank].error;
}

}  // namespace ebb::test
