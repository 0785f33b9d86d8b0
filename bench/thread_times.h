// Processor time of the threads of this process, told apart by name. Linux.
#pragma once

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace ebb::bench {

using ThreadIds = std::set<int>;

inline double seconds_on(clockid_t clock) {
  timespec used{};
  clock_gettime(clock, &used);  // of a thread that has ended: nothing
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

/// Of all threads, those that have ended too.
inline double process_processor_s() { return seconds_on(CLOCK_PROCESS_CPUTIME_ID); }

/// So far. The clock's number is what the kernel makes of a thread's (clock_getcpuclockid(3)).
inline double thread_processor_s(int thread) {
  return seconds_on(static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6u));
}

inline ThreadIds threads_of_process() {
  ThreadIds ids;
  DIR* const folder = opendir("/proc/self/task");
  if (!folder) return ids;
  while (const dirent* entry = readdir(folder)) {
    if (const int id = std::atoi(entry->d_name); id > 0) ids.insert(id);
  }
  closedir(folder);
  return ids;
}

inline std::string name_of_thread(int thread) {
  char name[32] = {};
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/comm";
  FILE* const file = std::fopen(path.c_str(), "r");
  if (!file) return "";
  const bool read = std::fgets(name, sizeof name, file) != nullptr;
  std::fclose(file);
  std::string text = read ? name : "";
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace ebb::bench
