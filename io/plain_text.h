// Decides which files are text, names those that are not, and shortens text for messages. Pure
// functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ebb {

/// The functions that take the beginning of a file need this many bytes, or the whole file if it is
/// smaller.
inline constexpr size_t kLookedAtBytes = size_t{64} << 10;

/// U+FEFF in UTF-8, with which some programs begin a text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// The length in bytes, 1 to 4, of the first character. If the text ends within the character, the
/// number of its bytes that the text contains. 0 if the text does not begin with a valid UTF-8
/// character. REQUIRES: the text is not empty.
size_t character_bytes(std::span<const std::byte> text);

/// A text for a message: up to `most_bytes` bytes of it, cut between two characters, and "..." if
/// more were left out.
std::string shortened(std::string_view text, size_t most_bytes = 100);

/// Whether the beginning of a file is text: it has no NUL byte, and at most a tenth of its bytes
/// are not UTF-8. So a few letters in an older encoding are allowed. A character that is incomplete
/// at the end counts as complete. An empty file is text.
bool is_text(std::span<const std::byte> beginning);

/// The number of bytes that are NUL or not UTF-8 in a part of a text. The part may begin and end
/// within a character; the incomplete characters are not counted.
size_t num_flaws(std::span<const std::byte> block);

/// Whether a file that should contain numbers is in fact text: it is_text() and has no control
/// characters except tabs and ends of lines and pages. False for files of less than 32 bytes,
/// because a few numbers can look like text by chance.
bool is_plainly_text(std::span<const std::byte> beginning);

/// The kind of safetensors files in a Look.
inline constexpr std::string_view kSafetensorsKind = "a safetensors file";

/// What the beginning of a file says about the file. The characters of `kind` and `advice` have
/// static storage.
struct Look {
  bool is_text = false;
  // Only for text:
  bool has_byte_order_mark = false;  ///< begins with kByteOrderMark
  bool is_utf8 = false;              ///< all of the given bytes are UTF-8
  bool is_json = false;              ///< begins like a JSON object, or a list of them
  // Only for files that are not text:
  std::string_view kind = {};    ///< "gzip data", "a PDF document"; empty: unknown
  std::string_view advice = {};  ///< how to make text or tokens of it
  /// The file surely has this kind. If false, the file may also be an array of tokens that begins
  /// with the same bytes by chance.
  bool is_certain = false;
  /// Nearly every second byte is NUL: UTF-16 without a byte order mark, or 16-bit values.
  bool is_wide = false;
};

/// A file that begins like a known kind ("%PDF-") is not text, even if all its bytes are UTF-8.
/// Some kinds begin with bytes with which a text may begin ("GIF89a"): a file that is_text() is
/// text in spite of them.
Look look_at(std::span<const std::byte> beginning);

}  // namespace ebb
