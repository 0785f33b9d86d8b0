#include "io/plain_text.h"

#include <algorithm>
#include <cstdint>

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

}  // namespace

size_t character_bytes(std::span<const std::byte> text) {
  const auto byte = [&](size_t i) { return std::to_integer<uint8_t>(text[i]); };
  const auto form = std::ranges::find_if(
      kForms, [&](const Form& f) { return byte(0) >= f.first && byte(0) <= f.last; });
  if (form == std::end(kForms)) return 0;
  const size_t count = std::min(form->num_more + 1, text.size());
  for (size_t i = 1; i < count; ++i) {
    const uint8_t least = i == 1 ? form->least_second : 0x80;
    const uint8_t greatest = i == 1 ? form->greatest_second : 0xbf;
    if (byte(i) < least || byte(i) > greatest) return 0;
  }
  return count;
}

bool is_text(std::span<const std::byte> beginning) {
  if (std::ranges::find(beginning, std::byte{0}) != beginning.end()) return false;
  size_t num_others = 0;
  for (auto rest = beginning; !rest.empty();) {
    const size_t bytes = character_bytes(rest);
    num_others += bytes == 0;
    rest = rest.subspan(std::max<size_t>(bytes, 1));
  }
  return num_others * 10 <= beginning.size();
}

}  // namespace ebb
