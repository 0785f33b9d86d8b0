// Sizes and rates as people write them: `256MiB`, `16GB`, `1.5GiB`, plain bytes; `12GB/s`,
// `12GB/s,6GB/s`.
//
// Units are B, kB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024). Upper and
// lower case count, because Gb means bits elsewhere. Pure functions; nullopt where the text is not
// a size.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "device/stream.h"

namespace ebb {

inline constexpr std::string_view kSizeSyntax = "a size like 256MiB, 1.5GiB, 16GB or plain bytes";
inline constexpr std::string_view kEmulateComputeSyntax =
    "a rate like 100TFLOP/s, above 0, or two, of arithmetic and of memory: 100TFLOP/s,2TB/s";
inline constexpr std::string_view kLinkSyntax =
    "a rate like 12GB/s, or two, up and down: 12GB/s,6GB/s";

/// "124.4 M"
std::string format_count(uint64_t count);

/// As flags take a size, in whole MiB and never less: "24MiB".
std::string flag_size(size_t bytes);

/// Bytes, rounded down; at most 2^63.
[[nodiscard]] std::optional<size_t> parse_size(std::string_view text);

struct LinkRates {
  double load_bytes_per_s = 0;
  double store_bytes_per_s = 0;
};
/// Both rates positive; one rate counts for both directions.
[[nodiscard]] std::optional<LinkRates> parse_link(std::string_view text);

/// FLOP/s with k, M, G, T or P before it, and of memory as parse_link; without the second, memory
/// is no limit.
[[nodiscard]] std::optional<ComputeRates> parse_compute_rates(std::string_view text);

}  // namespace ebb
