#include "io/plain_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

namespace ebb {
namespace {

/// The form of a character by its first byte (RFC 3629, section 4): the number of further bytes,
/// and the range of the second byte.
struct Form {
  uint8_t first, last;  // of the first byte
  size_t num_more;
  uint8_t least_second, greatest_second;
};
constexpr Form kForms[] = {
    {0x00, 0x7f, 0, 0, 0},       {0xc2, 0xdf, 1, 0x80, 0xbf}, {0xe0, 0xe0, 2, 0xa0, 0xbf},
    {0xe1, 0xec, 2, 0x80, 0xbf}, {0xed, 0xed, 2, 0x80, 0x9f}, {0xee, 0xef, 2, 0x80, 0xbf},
    {0xf0, 0xf0, 3, 0x90, 0xbf}, {0xf1, 0xf3, 3, 0x80, 0xbf}, {0xf4, 0xf4, 3, 0x80, 0x8f}};

constexpr uint8_t kNoForm = 0xff;

/// The index in kForms for each first byte, or kNoForm.
constexpr auto kFormOf = [] {
  std::array<uint8_t, 256> form_of = {};
  form_of.fill(kNoForm);
  for (uint8_t i = 0; i < std::size(kForms); ++i) {
    for (size_t byte = kForms[i].first; byte <= kForms[i].last; ++byte) form_of[byte] = i;
  }
  return form_of;
}();

}  // namespace

size_t character_bytes(std::span<const std::byte> text) {
  const auto byte = [&](size_t i) { return std::to_integer<uint8_t>(text[i]); };
  if (kFormOf[byte(0)] == kNoForm) return 0;
  const Form* form = &kForms[kFormOf[byte(0)]];
  const size_t count = std::min(form->num_more + 1, text.size());
  for (size_t i = 1; i < count; ++i) {
    const uint8_t least = i == 1 ? form->least_second : 0x80;
    const uint8_t greatest = i == 1 ? form->greatest_second : 0xbf;
    if (byte(i) < least || byte(i) > greatest) return 0;
  }
  return count;
}

namespace {

/// The number of bytes of ASCII at the beginning, or less by up to 7. Most text is ASCII, and long
/// files are checked, so 8 bytes are looked at together.
size_t ascii_bytes(std::span<const std::byte> text) {
  size_t count = 0;
  for (uint64_t word; count + sizeof word <= text.size(); count += sizeof word) {
    std::memcpy(&word, text.data() + count, sizeof word);
    if ((word & 0x8080808080808080) != 0) break;
  }
  return count;
}

/// The number of bytes that are not UTF-8.
size_t num_invalid(std::span<const std::byte> text) {
  size_t count = 0;
  while (true) {
    text = text.subspan(ascii_bytes(text));
    if (text.empty()) break;
    const size_t bytes = character_bytes(text);
    count += bytes == 0;
    text = text.subspan(std::max<size_t>(bytes, 1));
  }
  return count;
}

/// Text has line ends, tabs and page ends, and no other control characters.
bool is_control(uint32_t character) {
  return character < 0x20 && (character < '\t' || character > '\r');
}

/// Whether the text begins with {" or [{" and has spaces only between these.
bool begins_as_json(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string begin;
  for (const char c : text) {
    if (std::string_view(" \t\r\n").find(c) != std::string_view::npos) continue;
    begin += c;
    if (begin != "[" && begin != "{" && begin != "[{") break;
  }
  return begin == "{\"" || begin == "[{\"";
}

// ---- Kinds of files that are not text ----

constexpr std::string_view kLeaveOut = "only text and tokens can be learned: leave it out";
constexpr std::string_view kWeights =
    "weights go to `model`; write token ids as u16 or u32 without a header, and give `token_type`";
constexpr std::string_view kTable =
    "write its texts as lines of {\"text\": ...} (pandas: to_json(..., orient='records', "
    "lines=True)), and make tokens of them with tools/tokenize.py";
constexpr std::string_view kUtf16 = "convert it (iconv -f UTF-16 -t UTF-8)";
constexpr std::string_view kUtf16Little = "convert it (iconv -f UTF-16LE -t UTF-8)";
constexpr std::string_view kUtf16Big = "convert it (iconv -f UTF-16BE -t UTF-8)";
constexpr std::string_view kOther =
    "give text in UTF-8 (iconv converts other encodings), or a .bin file of tokens";

struct Signature {
  size_t offset;
  std::string_view bytes;
  std::string_view kind, advice;
  bool also_in_text = false;  ///< text may have these bytes: the file must be no text
};

using namespace std::string_view_literals;  // the bytes may contain NUL

// Longer signatures come before those that are their beginning.
constexpr Signature kSignatures[] = {
    {0, "\x1f\x8b\x08"sv, "gzip data", "decompress it first (gunzip -k)"},
    {0, "\x1f\x8b"sv, "gzip data", "decompress it first (gunzip -k)"},
    {0, "\x28\xb5\x2f\xfd"sv, "zstd data", "decompress it first (zstd -d)"},
    {0, "\xfd\x37zXZ\0"sv, "xz data", "decompress it first (xz -dk)"},
    {4, "1AY&SY"sv, "bzip2 data", "decompress it first (bunzip2 -k)", true},
    {0, "\x04\x22\x4d\x18"sv, "lz4 data", "decompress it first (lz4 -d)"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive", "unpack it first (7z x)"},
    {0, "PK\x03\x04"sv, "a zip archive (as .docx, .epub, .npz and .pt files are)",
     "unpack it first (unzip), or convert it to text or to a .bin file of tokens"},
    {257, "ustar"sv, "a tar archive", "unpack it first (tar -xf)", true},
    {0, "\x93NUMPY"sv, "a NumPy array",
     "write its token ids without a header (numpy: load(FILE).astype('uint16').tofile('ids.bin')), "
     "and give `token_type` u16"},
    {0, "\x88\xd8\x34\x01"sv, "a file of tokens (u16, with a header)",
     "give it a name that ends in .bin, or give `token_type` u16"},
    {0, "\xa1\xd9\x34\x01"sv, "a file of tokens (u32, with a header)",
     "give it a name that ends in .bin, or give `token_type` u32"},
    {0, "PAR1\x15"sv, "a Parquet table", kTable},
    {0, "ARROW1\0\0"sv, "an Arrow table", kTable},
    {0, "SQLite format 3\0"sv, "an SQLite database", kTable},
    {0, "\x89HDF\r\n"sv, "an HDF5 file", kWeights},
    {4, "\0\0\0\0{\""sv, kSafetensorsKind, kWeights},
    {8, "{\""sv, kSafetensorsKind, kWeights, true},
    {0, "GGUF"sv, "a GGUF file", kWeights, true},
    {0, "\x80\x02\x8a\x0a"sv, "a Python pickle (as old .pt files are)", kWeights},
    {0, "\x80\x02}q"sv, "a Python pickle (as old .pt files are)", kWeights},
    {0, "\x80\x02]q"sv, "a Python pickle", kWeights},
    {0,
     "\x80\x02"
     "cnumpy"sv,
     "a Python pickle", kWeights},
    {0,
     "\x80\x02"
     "ccollections"sv,
     "a Python pickle", kWeights},
    {0, "\x80\x03}q"sv, "a Python pickle", kWeights},
    {0, "\x80\x03]q"sv, "a Python pickle", kWeights},
    {0,
     "\x80\x03"
     "cnumpy"sv,
     "a Python pickle", kWeights},
    {0, "\x80\x04\x95"sv, "a Python pickle", kWeights},
    {0, "\x80\x05\x95"sv, "a Python pickle", kWeights},
    {0, "\x80\x02"sv, "a Python pickle (as old .pt files are)", kWeights},
    {0, "\x80\x04"sv, "a Python pickle", kWeights},
    {0, "\x80\x05"sv, "a Python pickle", kWeights},
    {0, "%PDF-"sv, "a PDF document", "extract its text first (pdftotext)"},
    {0, "\x89PNG\r\n"sv, "a PNG picture", kLeaveOut},
    {0, "\xff\xd8\xff"sv, "a JPEG picture", kLeaveOut},
    {0, "GIF87a"sv, "a GIF picture", kLeaveOut, true},
    {0, "GIF89a"sv, "a GIF picture", kLeaveOut, true},
    {8, "WEBP"sv, "a WebP picture", kLeaveOut, true},
    {0, "\177ELF"sv, "a program", kLeaveOut},
    {0, "\xff\xfe\0\0"sv, "UTF-32 text", "convert it (iconv -f UTF-32 -t UTF-8)"},
    {0, "\xff\xfe"sv, "UTF-16 text", kUtf16},
    {0, "\xfe\xff"sv, "UTF-16 text", kUtf16},
};
// One of 16 million arrays of random tokens begins with such a signature.
constexpr size_t kCertainBytes = 3;
// The same for a few bytes that look like text.
constexpr size_t kLeastTextBytes = 32;

bool matches(const Signature& signature, std::span<const std::byte> beginning) {
  const size_t offset = signature.offset;
  const std::string_view bytes = signature.bytes;
  if (beginning.size() < offset + bytes.size()) return false;
  const auto found = beginning.subspan(offset, bytes.size());
  return std::ranges::equal(found, std::as_bytes(std::span(bytes)));
}

enum class Wide : uint8_t { No, Little, Big };

/// UTF-16 without a byte order mark, in a language of which most letters are below U+0100: every
/// second byte is NUL, nearly always, and the others are not.
Wide wide_of(std::span<const std::byte> beginning) {
  size_t num_nul[2] = {0, 0};
  for (size_t i = 0; i < beginning.size(); ++i) num_nul[i % 2] += beginning[i] == std::byte{0};
  const auto [fewer, more] = std::minmax(num_nul[0], num_nul[1]);
  const bool is_wide = beginning.size() % 2 == 0 && more * 10 > beginning.size() * 4 &&
                       fewer * 100 < beginning.size();
  if (!is_wide) return Wide::No;
  return num_nul[1] > num_nul[0] ? Wide::Little : Wide::Big;
}

/// Whether text with this byte order mark follows, and not tokens of which the first has the value
/// of a mark: all units are valid, and none is a control character.
bool is_marked_utf16(std::span<const std::byte> beginning) {
  if (beginning.size() < kLeastTextBytes) return false;
  const size_t low = beginning[0] == std::byte{0xff} ? 0 : 1;
  bool after_high = false;
  for (size_t i = 2; i + 1 < beginning.size(); i += 2) {
    const auto unit = std::to_integer<uint32_t>(beginning[i + low]) |
                      std::to_integer<uint32_t>(beginning[i + 1 - low]) << 8;
    const bool is_high = unit >= 0xd800 && unit < 0xdc00, is_low = unit >= 0xdc00 && unit < 0xe000;
    if (is_low != after_high || is_control(unit)) return false;
    after_high = is_high;
  }
  return true;
}

}  // namespace

std::string shortened(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  size_t end = most_bytes;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

bool is_text(std::span<const std::byte> beginning) {
  if (std::ranges::find(beginning, std::byte{0}) != beginning.end()) return false;
  return num_invalid(beginning) * 10 <= beginning.size();
}

size_t num_flaws(std::span<const std::byte> block) {
  // Bytes of a character that began before the block.
  for (int i = 0; i < 3 && !block.empty(); ++i) {
    if ((block[0] & std::byte{0xc0}) != std::byte{0x80}) break;
    block = block.subspan(1);
  }
  return static_cast<size_t>(std::ranges::count(block, std::byte{0})) + num_invalid(block);
}

bool is_plainly_text(std::span<const std::byte> beginning) {
  return beginning.size() >= kLeastTextBytes && is_text(beginning) &&
         std::ranges::none_of(
             beginning, [](std::byte byte) { return is_control(std::to_integer<uint32_t>(byte)); });
}

Look look_at(std::span<const std::byte> beginning) {
  const bool like_text = is_text(beginning);
  for (const Signature& signature : kSignatures) {
    if ((like_text && signature.also_in_text) || !matches(signature, beginning)) continue;
    return {.kind = signature.kind,
            .advice = signature.advice,
            .is_certain = signature.bytes.size() >= kCertainBytes ||
                          (signature.advice == kUtf16 && is_marked_utf16(beginning))};
  }
  if (const Wide wide = wide_of(beginning); !like_text && wide != Wide::No) {
    return {.kind = "UTF-16 text",
            .advice = wide == Wide::Little ? kUtf16Little : kUtf16Big,
            .is_wide = true};
  }
  if (!like_text) return {.advice = kOther};
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  return {.is_text = true,
          .has_byte_order_mark = text.starts_with(kByteOrderMark),
          .is_utf8 = num_invalid(beginning) == 0,
          .is_json = begins_as_json(text)};
}

}  // namespace ebb
