#include "tools/printable.h"

#include <fmt/format.h>

#include <iterator>
#include <span>

#include "io/plain_text.h"

namespace ebb {
namespace {

/// Unicode has control characters below U+0020 and from U+007F to U+009F.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

std::string escaped(std::string_view bytes) {
  if (bytes == "\n") return "\\n";
  if (bytes == "\t") return "\\t";
  std::string text;
  for (const char byte : bytes) {
    fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

std::string replaced(std::string_view text, bool keeps_newlines) {
  // character_bytes() accepts a character that the end of the text cuts; before a blank, it does
  // not.
  const std::string padded = std::string(text) + ' ';
  std::string_view left = padded;
  std::string out;
  while (left.size() > 1) {
    const size_t bytes = character_bytes(std::as_bytes(std::span(left)));
    const std::string_view character = left.substr(0, bytes == 0 ? 1 : bytes);
    const bool stays =
        (keeps_newlines && character == "\n") || (bytes != 0 && !is_control(character));
    out += stays ? std::string(character) : escaped(character);
    left.remove_prefix(character.size());
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return replaced(text, false); }

std::string printable_lines(std::string_view text) { return replaced(text, true); }

}  // namespace ebb
