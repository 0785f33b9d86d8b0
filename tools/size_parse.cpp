#include "tools/size_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

namespace ebb {
namespace {

constexpr double kSizeLimit = static_cast<double>(kSizeLimitTiB) * 0x1p40;

constexpr std::pair<std::string_view, double> kUnits[] = {
    {"", 1},      {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};

constexpr std::pair<std::string_view, double> kFlopUnits[] = {
    {"FLOP", 1}, {"kFLOP", 1e3}, {"MFLOP", 1e6}, {"GFLOP", 1e9}, {"TFLOP", 1e12}, {"PFLOP", 1e15}};

using Units = std::span<const std::pair<std::string_view, double>>;

std::optional<double> unit_of(std::string_view name, Units units) {
  for (const auto& [unit, factor] : units) {
    if (unit == name) return factor;
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

struct Amount {
  std::string_view digits;  ///< "1.5"
  double number, unit;
};

/// Parses a number with a unit.
std::optional<Amount> parse_amount(std::string_view text, Units units = kUnits) {
  text = trimmed(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  const auto length = static_cast<size_t>(end - text.data());
  const auto unit = unit_of(trimmed(text.substr(length)), units);
  if (!unit) return std::nullopt;
  return Amount{text.substr(0, length), number, *unit};
}

/// Parses plain digits exactly, which a double cannot always represent.
std::optional<size_t> parse_digits(std::string_view text) {
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return bytes >> 40 < kSizeLimitTiB ? std::optional<size_t>(bytes) : std::nullopt;
}

std::optional<double> parse_rate(std::string_view text, Units units = kUnits) {
  text = trimmed(text);
  if (!text.ends_with("/s")) return std::nullopt;
  text.remove_suffix(2);
  const auto amount = parse_amount(text, units);
  if (!amount) return std::nullopt;
  const double rate = amount->number * amount->unit;
  return rate >= kLeastRate && rate <= kMostRate ? std::optional(rate) : std::nullopt;
}

}  // namespace

std::optional<size_t> parse_size(std::string_view text) {
  const auto amount = parse_amount(text);
  if (!amount) return std::nullopt;
  if (amount->unit == 1) return parse_digits(amount->digits);
  const double bytes = amount->number * amount->unit;
  return bytes < kSizeLimit ? std::optional(static_cast<size_t>(bytes)) : std::nullopt;
}

std::string size_meant_by(std::string_view text) {
  constexpr size_t kMostGiB = 1024, kMostMiB = 99'999;
  text = trimmed(text);
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, end);
  std::string unit(trimmed(text.substr(end)));
  if (!unit.empty()) {  // "128G" or "24Mb"
    std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::toupper(c); });
    const bool is_known = std::string_view("KMGT").find(unit[0]) != std::string_view::npos &&
                          (unit.size() == 1 || unit.substr(1) == "B" || unit.substr(1) == "IB");
    const std::string meant = fmt::format("{}{}iB", number, unit[0]);
    return is_known && !parse_size(text) && parse_size(meant).value_or(0) > 0 ? meant : "";
  }
  const auto amount = parse_digits(number);
  if (!amount || *amount == 0 || *amount > kMostMiB) return "";
  return fmt::format("{}{}", *amount, *amount <= kMostGiB ? "GiB" : "MiB");
}

std::string format_gigabytes(size_t bytes) {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  return fmt::format("{:.{}f} GB", gigabytes, gigabytes < 10 ? 2 : gigabytes < 1000 ? 1 : 0);
}

std::string format_count(uint64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.1f} B", value / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.1f} M", value / 1e6);
  return fmt::to_string(count);
}

std::string flag_size(size_t bytes) {
  constexpr size_t kMiB = size_t{1} << 20;
  return std::to_string((bytes + kMiB - 1) / kMiB) + "MiB";
}

std::optional<double> parse_byte_rate(std::string_view text) { return parse_rate(text); }

std::optional<LinkRates> parse_link(std::string_view text) {
  const size_t comma = text.find(',');
  const auto load = parse_rate(text.substr(0, comma));
  const auto store = comma == std::string_view::npos ? load : parse_rate(text.substr(comma + 1));
  if (!load || !store) return std::nullopt;
  return LinkRates{.load_bytes_per_s = *load, .store_bytes_per_s = *store};
}

std::optional<ComputeRates> parse_compute_rates(std::string_view text) {
  const size_t comma = text.find(',');
  const auto flops = parse_rate(text.substr(0, comma), kFlopUnits);
  if (!flops) return std::nullopt;
  if (comma == std::string_view::npos) return ComputeRates{.flops_per_s = *flops};
  const auto bytes = parse_rate(text.substr(comma + 1));
  if (!bytes) return std::nullopt;
  return ComputeRates{.flops_per_s = *flops, .bytes_per_s = *bytes};
}

}  // namespace ebb
