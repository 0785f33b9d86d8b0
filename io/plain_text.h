// Decides which files are text, and names those that are not. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ebb {

/// Give is_text() and look_at() this many bytes from the beginning of a file, or the whole file if
/// it is smaller.
inline constexpr size_t kLookedAtBytes = size_t{64} << 10;

/// U+FEFF in UTF-8, with which some programs begin a text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// The number of bytes of the first character that are present; 0 if the text does not begin with a
/// UTF-8 character. REQUIRES: the text is not empty.
size_t character_bytes(std::span<const std::byte> text);

/// Whether the beginning of a file is text: it has no NUL byte, and at most a tenth of its bytes
/// are not UTF-8. So a few letters in an older encoding are allowed. A character that is incomplete
/// at the end counts as complete.
bool is_text(std::span<const std::byte> beginning);

/// The number of bytes of a block from the middle of a text that are NUL or not UTF-8. The block
/// may begin and end within a character.
size_t num_flaws(std::span<const std::byte> block);

/// Whether a file that is read as numbers is in fact text: it is_text() and has no control
/// characters other than tabs and ends of lines and pages. False for files of a few bytes, which
/// could look like text by chance.
bool is_plainly_text(std::span<const std::byte> beginning);

/// The kind of safetensors files in a Look.
inline constexpr std::string_view kSafetensorsKind = "a safetensors file";

/// What the beginning of a file shows.
struct Look {
  bool is_text = false;
  // Of text alone:
  bool has_byte_order_mark = false;  ///< begins with the three bytes of UTF-8's mark
  bool is_utf8 = false;              ///< all of the given bytes
  bool is_json = false;              ///< begins like a JSON object, or a list of them
  // Of files that are not text:
  std::string_view kind = {};    ///< "gzip data", "a PDF document"; empty: unknown
  std::string_view advice = {};  ///< how to make text or tokens of it
  bool is_certain = false;       ///< the first bytes cannot be those of plain tokens by chance
  bool is_wide = false;  ///< every second byte is NUL: UTF-16 without a mark, or values of 16 bits
};

/// Files of a known kind are not text, even if all their bytes are (a PDF document).
Look look_at(std::span<const std::byte> beginning);

}  // namespace ebb
