// Reads the user's messages from standard input, for `ebb generate --chat`: one per line from a
// terminal, otherwise the whole input as one message.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ebb {

class MessageReader {
 public:
  /// `stop` is called ten times a second while a message is awaited.
  explicit MessageReader(std::function<bool()> stop);

  bool is_terminal() const { return is_terminal_; }
  /// The next message; nullopt at the end of the input, or after `stop` has returned true. Empty
  /// lines of a terminal are skipped. Throws IoError.
  std::optional<std::string> next();

 private:
  /// Appends what there is to read. Returns false at the end.
  bool read();

  std::function<bool()> stop_;
  bool is_terminal_;
  std::string text_;
};

}  // namespace ebb
