#include "tools/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "comm/process_ranks.h"
#include "device/errors.h"
#include "scheduler/run/trainer.h"
#include "system/quiet_thread.h"
#include "system/unique_fd.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace ebb {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable)
    environment.emplace_back(*variable);
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

pid_t start_process(std::vector<std::string> command, std::vector<std::string> environment) {
  command.insert(command.begin(), "ebb");
  pid_t process = 0;
  const int error = ::posix_spawn(&process, kThisProgram, nullptr, nullptr,
                                  pointers_to(command).data(), pointers_to(environment).data());
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "starting a process for a rank");
  }
  return process;
}

/// "ended with exit code 3"
std::string end_text(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                             : fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

void discard_output() {
  const UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (nowhere.get() < 0) throw IoError("cannot open", "/dev/null", errno);
  ::dup2(nowhere.get(), STDOUT_FILENO);
  ::dup2(nowhere.get(), STDERR_FILENO);
}

}  // namespace

class RankProcesses::Started {
 public:
  Started(uint32_t num_ranks, const std::vector<std::string>& command)
      : memory_(create_rank_memory(num_ranks)) {
    try {
      for (uint32_t rank = 1; rank < num_ranks; ++rank) {
        processes_.push_back(
            start_process(command, environment_with(rank_variables(memory(), rank))));
      }
      watcher_ = start_quiet_thread([this] { watch(); });
    } catch (const std::exception& error) {
      fail_ranks(memory(), error.what());
      throw;
    }
  }
  /// Waits for the processes.
  ~Started() { watcher_.join(); }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  int memory() const { return memory_.get(); }

 private:
  /// A process that ends before it is a rank is seen only here.
  void watch() {
    std::vector<pid_t> left = processes_;  // 0: it has ended
    for (size_t num_left = left.size(); num_left > 0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      for (size_t i = 0; i < left.size(); ++i) {
        int status = 0;
        if (left[i] == 0 || ::waitpid(left[i], &status, WNOHANG) != left[i]) continue;
        left[i] = 0;
        --num_left;
        if (status == 0) continue;
        fail_ranks(memory(), fmt::format("the process of rank {} {}", i + 1, end_text(status)));
      }
    }
  }

  const UniqueFd memory_;
  std::vector<pid_t> processes_;  // of rank 1, 2, ...
  std::thread watcher_;
};

RankProcesses::RankProcesses(uint32_t num_ranks, uint32_t usual,
                             const std::vector<std::string>& command,
                             const ProcessRanksOptions& options) {
  ranks_ = join_ranks_of_environment(options);
  if (ranks_ != nullptr) {
    if (num_ranks != 0 && num_ranks != ranks_->size()) {
      throw ConfigError(fmt::format("--ranks {}: the environment has {} ranks; leave --ranks out",
                                    num_ranks, ranks_->size()));
    }
    if (!is_first()) discard_output();
    return;
  }
  if (num_ranks == 0) num_ranks = usual;
  if (num_ranks <= 1) return;
  started_ = std::make_unique<Started>(num_ranks, command);
  try {
    ranks_ = join_ranks(started_->memory(), 0, options);
  } catch (const std::exception& error) {
    fail_ranks(started_->memory(), error.what());  // the processes wait for rank 0
    throw;
  }
}

RankProcesses::~RankProcesses() = default;

RankPlace RankProcesses::place() const { return place_of(ranks_.get()); }

void RankProcesses::fail(const char* error) noexcept {
  if (ranks_ != nullptr) ranks_->fail(error);
}

std::vector<std::string> texts_of_ranks(Ranks* ranks, const std::string& mine) {
  if (ranks == nullptr) return {mine};
  const std::vector<uint64_t> sizes = all_of_ranks(*ranks, uint64_t{mine.size()});
  const size_t longest = std::ranges::max(sizes);
  std::string padded = mine, all(longest * ranks->size(), 0);
  padded.resize(longest);
  exchange(*ranks, std::span<const char>(padded), std::span(all));
  std::vector<std::string> texts;
  for (uint32_t r = 0; r < ranks->size(); ++r) texts.push_back(all.substr(r * longest, sizes[r]));
  return texts;
}

/// The other ranks ask once a second whether rank 0 still works, so no wait reaches its time limit.
void on_first_rank(Ranks* ranks, const std::function<void()>& work) {
  if (ranks == nullptr) return work();
  if (ranks->rank() != 0) {
    while (greatest_of_ranks(ranks, 0) > 0) {
    }
    return;
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr lost;
  std::thread answers = start_quiet_thread([&] {
    std::unique_lock lock(mutex);
    try {
      while (!changed.wait_for(lock, std::chrono::seconds(1), [&] { return is_done; })) {
        greatest_of_ranks(ranks, 1);
      }
    } catch (...) {
      lost = std::current_exception();
    }
  });
  const auto end = [&] {
    {
      std::lock_guard lock(mutex);
      is_done = true;
    }
    changed.notify_one();
    answers.join();
  };
  try {
    work();
  } catch (...) {
    end();
    throw;
  }
  end();
  if (lost) std::rethrow_exception(lost);
  greatest_of_ranks(ranks, 0);
}

}  // namespace ebb
