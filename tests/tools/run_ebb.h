// Runs the built `ebb` and collects its output, for tests of the command line.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ebb {

/// The path of the program.
std::string ebb_binary();

struct Outcome {
  int exit_code = -1;  ///< -signal where one ended it
  std::string out;
  std::string err;
};

/// A started `ebb`; its output goes to files under `folder`. It finds what was measured of this
/// machine in `cache`; empty: where it was measured once for all tests.
class EbbProcess {
 public:
  EbbProcess(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
             const std::filesystem::path& cache = {});
  ~EbbProcess();
  EbbProcess(const EbbProcess&) = delete;
  EbbProcess& operator=(const EbbProcess&) = delete;

  void signal(int number) const;
  /// Has it a signalfd by now, from which it takes its signals?
  bool watches_signals() const;
  Outcome wait();

 private:
  std::filesystem::path out_, err_;
  pid_t process_ = -1;
};

Outcome run_ebb(const std::vector<std::string>& arguments, const std::filesystem::path& folder);

/// Of a line "name number" that it printed; NaN where there is none.
double number_of(const Outcome& outcome, const std::string& name);

/// The path of a file or folder in tests/fixtures.
std::string fixture_path(const std::string& name);

/// "" where there is no such file.
std::string content_of(const std::filesystem::path& path);

/// A folder that is removed at the end of its life.
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

// In tests (gtest): a text that has `fragment` in it; an Outcome that is an error and says so.
#define EXPECT_SAYS(text, fragment) EXPECT_NE((text).find(fragment), std::string::npos) << (text)
#define EXPECT_FAILS(outcome, code, fragment)        \
  do {                                               \
    const ::ebb::Outcome result = (outcome);         \
    EXPECT_EQ(result.exit_code, code) << result.err; \
    EXPECT_EQ(result.out, "");                       \
    EXPECT_SAYS(result.err, "ebb: error: ");         \
    EXPECT_SAYS(result.err, fragment);               \
  } while (false)

}  // namespace ebb
