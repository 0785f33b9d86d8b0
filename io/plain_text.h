// What counts as text among the files of a folder. A pure function.
#pragma once

#include <cstddef>
#include <span>

namespace ebb {

/// Of a file, this much is looked at.
inline constexpr size_t kLookedAtBytes = size_t{64} << 10;

/// Is the beginning of a file (or all of it) text: without a NUL byte, and UTF-8 but for at most a
/// tenth of its bytes? So a few letters of an older encoding do no harm. A character that is cut
/// at the end counts as whole.
bool is_text(std::span<const std::byte> beginning);

}  // namespace ebb
