#include "tools/text_program.h"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "device/errors.h"
#include "io/json_text.h"
#include "tools/text_archive.h"

namespace ebb {
namespace {

constexpr int kArchive = 3;  // the descriptor from which Python reads the archive
constexpr const char* kArchivePath = "/proc/self/fd/3";
constexpr int kStopInterval = 100;  // ms

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Empty if there is no home folder.
std::filesystem::path python_folder() {
  const std::string data = variable("XDG_DATA_HOME"), home = variable("HOME");
  if (data.starts_with('/')) return std::filesystem::path(data) / "ebb" / "python";
  if (home.starts_with('/')) return std::filesystem::path(home) / ".local/share/ebb/python";
  return {};
}

std::string find_python() {
  if (std::string given = variable("EBB_PYTHON"); !given.empty()) return given;
  const std::filesystem::path folder = python_folder();
  const std::string own = (folder / "bin" / "python3").string();
  return !folder.empty() && ::access(own.c_str(), X_OK) == 0 ? own : "python3";
}

constexpr std::string_view kWithoutPython =
    "Models over bytes, token files and --prompt-tokens need no Python";

std::string no_python_text(const std::string& python, int error_number) {
  const bool is_given = !variable("EBB_PYTHON").empty();
  return fmt::format(
      "text becomes tokens in Python, and {} cannot be started: {}. {}. {}",
      is_given ? fmt::format("EBB_PYTHON '{}'", python) : fmt::format("'{}'", python),
      std::strerror(error_number),
      is_given ? "Name a Python 3.9 or later, or unset EBB_PYTHON"
               : "Install Python 3.9 or later (Debian, Ubuntu: apt install python3 python3-venv)",
      kWithoutPython);
}

std::string missing_package_text(const nlohmann::json& answer) {
  const auto python = answer.at("python").get<std::string>();
  const auto packages = answer.at("packages").get<std::string>();
  const std::string folder = python_folder().string();
  const bool is_chosen = !variable("EBB_PYTHON").empty() || python.starts_with(folder + "/");
  const std::string install =
      is_chosen
          ? fmt::format("'{}' -m pip install {}", python, packages)
          : fmt::format("python3 -m venv '{0}' && '{0}/bin/pip' install {1}", folder, packages);
  return fmt::format(
      "text becomes tokens in Python, and {} has no module {}. It needs the packages {}. Install "
      "them "
      "where ebb looks for them: {} (or name a Python that has them: export "
      "EBB_PYTHON=/path/to/python). {}",
      python, answer.at("missing").get<std::string>(), packages, install, kWithoutPython);
}

int archive_descriptor() {
  const int file = ::memfd_create("ebb-text", MFD_CLOEXEC);
  if (file < 0) throw IoError("cannot create", "a file in memory", errno);
  const std::string_view archive = text_archive();
  size_t done = 0;
  while (done < archive.size()) {
    const ssize_t written = ::write(file, archive.data() + done, archive.size() - done);
    if (written < 0) {
      const int error_number = errno;
      ::close(file);
      throw IoError("cannot write", "a file in memory", error_number);
    }
    done += static_cast<size_t>(written);
  }
  return file;
}

/// Returns 0 or the number of the error.
int spawn(const std::string& python, int socket, int archive, pid_t& process) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, archive, kArchive);
  const std::array<char*, 3> arguments = {const_cast<char*>(python.c_str()),
                                          const_cast<char*>(kArchivePath), nullptr};
  // The signals that this process blocks stay blocked: Ctrl-C is for this process, which then ends
  // the program.
  const int error =
      ::posix_spawnp(&process, python.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

TextProgram::TextProgram(std::function<bool()> stop)
    : stop_(std::move(stop)), python_(find_python()) {
  std::array<int, 2> sockets = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    throw IoError("cannot create", "a socket", errno);
  }
  socket_ = sockets[0];
  try {
    const int archive = archive_descriptor();
    const int error = spawn(python_, sockets[1], archive, process_);
    ::close(archive);
    if (error != 0) throw ConfigError(no_python_text(python_, error));
  } catch (...) {
    ::close(sockets[0]);
    ::close(sockets[1]);
    throw;
  }
  ::close(sockets[1]);
}

TextProgram::~TextProgram() {
  ::close(socket_);
  if (process_ > 0) ::waitpid(process_, nullptr, 0);
}

nlohmann::json TextProgram::ask(const std::string& request, const nlohmann::json& value) {
  std::string line;
  try {
    line = json_text(nlohmann::json{{request, value}});
  } catch (const nlohmann::json::type_error&) {
    throw ConfigError(
        "a text or a path is not UTF-8, which tokenizers cannot read: convert the text, or rename "
        "the file");
  }
  send(line + "\n");
  const nlohmann::json answer = parse_json(receive_line());
  if (const auto result = answer.find("result"); result != answer.end()) return *result;
  if (const auto error = answer.find("error"); error != answer.end()) {
    throw ConfigError(error->get<std::string>());
  }
  if (answer.contains("missing")) throw ConfigError(missing_package_text(answer));
  throw Error(answer.at("failure").get<std::string>());
}

std::string TextProgram::version() {
  const std::string_view archive = text_archive();
  return fmt::format("{:016x}", XXH64(archive.data(), archive.size(), 0));
}

void TextProgram::send(std::string_view line) const {
  while (!line.empty()) {
    const ssize_t sent = ::send(socket_, line.data(), line.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return;  // the program has ended, which receive_line() reports
    line.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string TextProgram::receive_line() {
  std::array<char, 1 << 16> bytes;
  size_t end = received_.find('\n');
  while (end == received_.npos) {
    if (stop_ && stop_()) throw Stopped();
    pollfd waiting = {.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, stop_ ? kStopInterval : -1) <= 0) continue;
    const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw_ended();
    const size_t before = received_.size();
    received_.append(bytes.data(), static_cast<size_t>(count));
    end = received_.find('\n', before);
  }
  const std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  has_answered_ = true;
  return line;
}

void TextProgram::throw_ended() {
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("by signal {}", WTERMSIG(status))
                              : fmt::format("with exit code {}", WEXITSTATUS(status));
  const std::string text = fmt::format(
      "'{}', which makes tokens of text, ended {}; what it printed is above", python_, how);
  // A program that is no Python, or a broken Python, ends at once with its own message.
  if (WIFEXITED(status) && !has_answered_)
    throw ConfigError(text + "; EBB_PYTHON names another Python");
  throw Error(text);
}

}  // namespace ebb
