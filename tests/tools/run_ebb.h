// Runs the built `ebb` and collects its output and exit code, for tests of the command line.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/error_of.h"

namespace ebb {

using Arguments = std::vector<std::string>;

inline Arguments& operator+=(Arguments& arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}
inline Arguments operator+(Arguments arguments, const Arguments& more) { return arguments += more; }

/// Returns the path of the built program.
std::string ebb_binary();

struct Outcome {
  int exit_code = -1;  ///< the negative number of the signal that ended it, if any
  std::string out;
  std::string err;
};

/// A running `ebb`. Its output goes to files in `folder`. It caches the measured rates of the
/// machine in `cache`; an empty path means a folder that all tests share.
class EbbProcess {
 public:
  EbbProcess(const Arguments& arguments, const std::filesystem::path& folder,
             const std::filesystem::path& cache = {});
  ~EbbProcess();
  EbbProcess(const EbbProcess&) = delete;
  EbbProcess& operator=(const EbbProcess&) = delete;

  pid_t id() const { return process_; }
  void signal(int number) const;
  /// Returns true if the process has opened the signalfd from which it reads its signals.
  bool watches_signals() const;
  Outcome wait();

 private:
  std::filesystem::path out_, err_;
  pid_t process_ = -1;
};

Outcome run_ebb(const Arguments& arguments, const std::filesystem::path& folder);

/// Returns the number of the printed line "name number"; NaN if there is no such line.
double number_of(const Outcome& outcome, const std::string& name);

/// Returns the path of a file or folder in tests/fixtures.
std::string fixture_path(const std::string& name);

/// Returns the content of a file; "" if there is no such file.
std::string content_of(const std::filesystem::path& path);

/// Sets or unsets a variable of the environment. The destructor gives it its old value.
class EnvironmentVariable {
 public:
  /// nullopt: unsets it.
  EnvironmentVariable(const char* name, const std::optional<std::string>& value);
  ~EnvironmentVariable();
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// A folder that the destructor removes.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path() const { return path_; }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

// For gtest: expects an error with this exit code whose message contains `fragment`.
#define EXPECT_FAILS(outcome, code, fragment)        \
  do {                                               \
    const ::ebb::Outcome result = (outcome);         \
    EXPECT_EQ(result.exit_code, code) << result.err; \
    EXPECT_EQ(result.out, "");                       \
    EXPECT_SAYS(result.err, "ebb: error: ");         \
    EXPECT_SAYS(result.err, fragment);               \
  } while (false)

}  // namespace ebb
