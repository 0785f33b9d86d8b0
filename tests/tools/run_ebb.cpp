#include "tests/tools/run_ebb.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace ebb {
namespace {

void redirect(int descriptor, const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(125);
}

std::vector<char*> argument_list(const Arguments& arguments) {
  std::vector<char*> list = {const_cast<char*>(EBB_BINARY)};
  for (const std::string& argument : arguments) list.push_back(const_cast<char*>(argument.c_str()));
  list.push_back(nullptr);
  return list;
}

void set_variable(const char* name, const std::optional<std::string>& value) {
  if (value) {
    ::setenv(name, value->c_str(), 1);
  } else {
    ::unsetenv(name);
  }
}

}  // namespace

std::string ebb_binary() { return EBB_BINARY; }

EbbProcess::EbbProcess(const Arguments& arguments, const std::filesystem::path& folder,
                       const std::filesystem::path& cache)
    : out_(folder / "stdout"), err_(folder / "stderr") {
  const std::vector<char*> list = argument_list(arguments);
  process_ = ::fork();
  if (process_ < 0) throw std::runtime_error("fork failed");
  if (process_ == 0) {
    redirect(STDOUT_FILENO, out_);
    redirect(STDERR_FILENO, err_);
    // Tests must not use or change the user's cache.
    const auto shared = std::filesystem::temp_directory_path() / "ebb-test-cache";
    ::setenv("XDG_CACHE_HOME", (cache.empty() ? shared : cache).c_str(), 1);
    ::execv(EBB_BINARY, list.data());
    ::_exit(126);
  }
}

EbbProcess::~EbbProcess() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

bool EbbProcess::watches_signals() const {
  const std::filesystem::path files = "/proc/" + std::to_string(process_) + "/fd";
  std::error_code gone;  // the process may close a file while we read
  for (const auto& file : std::filesystem::directory_iterator(files, gone)) {
    const auto target = std::filesystem::read_symlink(file.path(), gone).string();
    if (target.find("signalfd") != std::string::npos) return true;
  }
  return false;
}

void EbbProcess::signal(int number) const { ::kill(process_, number); }

Outcome EbbProcess::wait() {
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return {code, content_of(out_), content_of(err_)};
}

Outcome run_ebb(const Arguments& arguments, const std::filesystem::path& folder) {
  return EbbProcess(arguments, folder).wait();
}

double number_of(const Outcome& outcome, const std::string& name) {
  std::istringstream lines(outcome.out);
  std::string word;
  double number = NAN;
  while (lines >> word >> number) {
    if (word == name) return number;
  }
  return NAN;
}

std::string fixture_path(const std::string& name) { return std::string(EBB_FIXTURES) + "/" + name; }

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

EnvironmentVariable::EnvironmentVariable(const char* name, const std::optional<std::string>& value)
    : name_(name) {
  if (const char* const before = std::getenv(name)) before_ = before;
  set_variable(name, value);
}

EnvironmentVariable::~EnvironmentVariable() { set_variable(name_, before_); }

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "ebb-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return (path_ / name).string();
}

}  // namespace ebb
