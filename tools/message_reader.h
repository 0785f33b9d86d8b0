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
  /// The next message, without the ends of lines after it; nullopt at the end of the input, or if
  /// `stop` returned true. On a terminal, prints "> " on stderr, skips empty lines, and ignores a
  /// last line that does not end. Throws IoError.
  std::optional<std::string> next();

 private:
  /// Appends what there is to read. Returns false at the end.
  bool read();

  std::function<bool()> stop_;
  bool is_terminal_;
  std::string text_;
};

}  // namespace ebb
