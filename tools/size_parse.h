// Parses sizes and rates as users write them: `256MiB`, `16GB`, `1.5GiB`, plain bytes; `12GB/s`,
// `12GB/s,6GB/s`.
//
// Units are B, kB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024). KB is
// kB. Otherwise case matters: Gb often means bits. Pure functions; they return nullopt if the text
// is not a size.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "device/stream.h"

namespace ebb {

inline constexpr std::string_view kSizeSyntax = "a size like 256MiB, 1.5GiB, 16GB or plain bytes";
inline constexpr std::string_view kEmulateComputeSyntax =
    "a rate like 100TFLOP/s, or two, of arithmetic and of memory: 100TFLOP/s,2TB/s; from 1kFLOP/s "
    "and 1kB/s to 1e21";
inline constexpr std::string_view kLinkSyntax =
    "a rate like 12GB/s, or two, up and down: 12GB/s,6GB/s; from 1kB/s to 1e21 B/s";

inline constexpr std::string_view kByteRateSyntax =
    "a rate like 50GB/s, from 1kB/s to 1e21 B/s; 400 Gb/s are 50GB/s";

/// "124.4 M"
std::string format_count(uint64_t count);

/// In powers of ten, as RAM is sold: "128.0 GB".
std::string format_gigabytes(size_t bytes);

/// A size as flags accept it, rounded up to whole MiB: "24MiB".
std::string flag_size(size_t bytes);

/// The least number of TiB that is no size: 2^63 bytes.
inline constexpr size_t kSizeLimitTiB = size_t{1} << 23;
/// Returns whole bytes; with a unit above B, rounded down. nullopt for kSizeLimitTiB or more.
[[nodiscard]] std::optional<size_t> parse_size(std::string_view text);

/// What a number without a unit probably means, because no memory is so small: "24GiB" for "24",
/// "8192MiB" for "8192". Or what a number with a unit in another spelling probably means: "24GiB"
/// for "24G", "24 g" and "24Gb", because RAM is sold in GiB. Empty for everything else.
[[nodiscard]] std::string size_meant_by(std::string_view text);

struct LinkRates {
  double load_bytes_per_s = 0;
  double store_bytes_per_s = 0;
};
/// Rates per second that a machine can have. Outside of them, times overflow or become 0.
inline constexpr double kLeastRate = 1e3, kMostRate = 1e21;
/// One rate applies to both directions.
[[nodiscard]] std::optional<LinkRates> parse_link(std::string_view text);

/// A rate in bytes per second.
[[nodiscard]] std::optional<double> parse_byte_rate(std::string_view text);

/// A rate in FLOP/s with prefix k, M, G, T or P; after a comma, the rate of memory in bytes/s.
/// Without the second rate, memory does not limit the speed.
[[nodiscard]] std::optional<ComputeRates> parse_compute_rates(std::string_view text);

}  // namespace ebb
