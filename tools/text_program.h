// Runs the Python program that makes tokens of text, and text of tokens. The program is part of
// `ebb` (text_archive.h), so only Python and three packages must be installed.
// tokenizing/service.py has the requests and answers.
//
// Python is that of EBB_PYTHON; or else the one in the folder "python" of ebb's data folder
// ($XDG_DATA_HOME/ebb or ~/.local/share/ebb), where the message about a missing package installs
// it; or else the python3 in PATH.
//
// One thread at a time. Errors: ConfigError if there is no Python, if what was started is no such
// Python, if a package is missing, or if the program refuses its input; Error if the program fails;
// IoError if the system refuses a socket or memory.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ebb {

class TextProgram {
 public:
  /// What ask() throws after `stop` has returned true. Then this object can only be destroyed.
  struct Stopped {};

  /// Starts Python. `stop`, if given, is called ten times a second while an answer is awaited.
  explicit TextProgram(std::function<bool()> stop = {});
  /// Ends the program, also while it works.
  ~TextProgram();
  TextProgram(const TextProgram&) = delete;
  TextProgram& operator=(const TextProgram&) = delete;

  /// Sends a request and returns its result.
  nlohmann::json ask(const std::string& request, const nlohmann::json& value);

  /// A hash of the program: other versions may make other tokens.
  static std::string version();

 private:
  void send(std::string_view line) const;
  std::string receive_line();
  [[noreturn]] void throw_ended();

  std::function<bool()> stop_;
  std::string python_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string received_;
  bool has_answered_ = false;
};

}  // namespace ebb
