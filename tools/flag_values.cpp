#include "tools/flag_values.h"

#include <fmt/format.h>

#include <charconv>
#include <climits>

#include "io/plain_text.h"

namespace ebb {
namespace {

/// `is_below`: the refused value is 0 or negative.
std::string describe(const RealRange& range, bool is_below) {
  const bool names_zero = range.zero_allowed && range.least > 0;
  if (is_below && range.most == RealRange().most) {
    return range.zero_allowed ? "0, or a number above 0" : "a number above 0";
  }
  return fmt::format("{}a number from {} to {}", names_zero ? "0, or " : "", range.least,
                     range.most);
}

bool contains(const RealRange& range, double value) {
  if (value == 0 && range.zero_allowed) return true;
  return value >= range.least && value <= range.most;  // both false for NaN
}

template <class T>
bool parse_whole_text(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void throw_bad_value(std::string_view flag, std::string_view value, std::string_view allowed) {
  throw ConfigError(fmt::format("{} '{}': allowed is {}", flag, shortened(value), allowed));
}

void throw_bad_choice(std::string_view flag, std::string_view text, std::string_view choices) {
  throw_bad_value(flag, text, fmt::format("one of {}", choices));
}

uint64_t whole_value(std::string_view flag, std::string_view text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  if (parse_whole_text(text, value) && value >= least && value <= most) return value;
  const bool is_too_large = !text.empty() && text.find_first_not_of("0123456789") == text.npos &&
                            (!parse_whole_text(text, value) || value > most);
  if (is_too_large || most < INT64_MAX) {
    throw_bad_value(flag, text, fmt::format("a whole number from {} to {}", least, most));
  }
  throw_bad_value(flag, text, fmt::format("a whole number, at least {}", least));
}

double real_value(std::string_view flag, std::string_view text, const RealRange& range) {
  double value = 0;
  const bool is_number = parse_whole_text(text, value);
  if (is_number && contains(range, value)) return value;
  throw_bad_value(flag, text, describe(range, is_number && value <= 0));
}

std::string path_value(std::string_view flag, std::string_view text, const char* home) {
  if (text.empty()) throw_bad_value(flag, text, "the path of a file or folder");
  if (text.size() >= PATH_MAX) {
    throw_bad_value(flag, text, fmt::format("a path of fewer than {} bytes", PATH_MAX));
  }
  if (!text.starts_with('~')) return std::string(text);
  const std::string_view rest = text.substr(1);
  if (!rest.empty() && rest.front() != '/') {
    throw_bad_value(
        flag, text,
        fmt::format("~/ for your home folder, or ./{} for a name that begins with ~", text));
  }
  if (home == nullptr || *home != '/') {
    throw_bad_value(flag, text, "a path without ~, because HOME does not name a folder");
  }
  return std::string(home).append(rest);
}

size_t size_value(std::string_view flag, std::string_view text) {
  const auto bytes = parse_size(text);
  if (const std::string meant = size_meant_by(text); !meant.empty()) {
    const std::string is = bytes ? fmt::format("this is {} bytes: ", *bytes) : "";
    throw_bad_value(flag, text, fmt::format("{}; {}did you mean {}?", kSizeSyntax, is, meant));
  }
  if (bytes && *bytes > 0) return *bytes;
  const bool is_number = !text.empty() && text.front() >= '0' && text.front() <= '9';
  throw_bad_value(flag, text,
                  bytes || !is_number ? fmt::format("{}, above 0", kSizeSyntax)
                                      : fmt::format("{}, below {}TiB", kSizeSyntax, kSizeLimitTiB));
}

LinkRates link_value(std::string_view flag, std::string_view text) {
  if (const auto rates = parse_link(text)) return *rates;
  throw_bad_value(flag, text, kLinkSyntax);
}

double network_value(std::string_view flag, std::string_view text) {
  if (const auto rate = parse_byte_rate(text)) return *rate;
  throw_bad_value(flag, text, kByteRateSyntax);
}

ComputeRates compute_rates_value(std::string_view flag, std::string_view text) {
  if (const auto rates = parse_compute_rates(text)) return *rates;
  throw_bad_value(flag, text, kEmulateComputeSyntax);
}

}  // namespace ebb
