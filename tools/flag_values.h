// Converts the text of a flag into a checked value. ConfigError names the flag, the value and the
// allowed values. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "device/dtype.h"
#include "device/errors.h"
#include "tools/size_parse.h"

namespace ebb {

/// "--steps '-5': allowed is a whole number from 1 to 9". A long value is shortened.
[[noreturn]] void throw_bad_value(std::string_view flag, std::string_view value,
                                  std::string_view allowed);

/// A whole number from `least` to `most`.
uint64_t whole_value(std::string_view flag, std::string_view text, uint64_t least,
                     uint64_t most = INT64_MAX);

/// The real numbers that a flag allows. Never NaN, never infinite. The kernels use them in fp32 and
/// treat denormal numbers as 0, so the defaults leave a margin to the limits of fp32 (1.2e-38 and
/// 3.4e38): a product with a scale is not 0 or infinite either.
struct RealRange {
  double least = 1e-30;
  double most = 1e30;
  bool zero_allowed = false;
};
double real_value(std::string_view flag, std::string_view text, const RealRange& range);

/// The path, with $HOME for a leading "~": a shell expands neither --save=~/run nor what a file
/// contains. `home` is null if HOME is not set. "~name" is refused.
std::string path_value(std::string_view flag, std::string_view text, const char* home);

/// At least one byte.
size_t size_value(std::string_view flag, std::string_view text);
LinkRates link_value(std::string_view flag, std::string_view text);
/// Bytes per second.
double network_value(std::string_view flag, std::string_view text);
ComputeRates compute_rates_value(std::string_view flag, std::string_view text);

template <class T>
using Choice = std::pair<std::string_view, T>;

/// The types of weights.
inline constexpr Choice<DType> kTypes[] = {
    {"fp32", DType::F32}, {"bf16", DType::BF16}, {"fp16", DType::F16}};

[[noreturn]] void throw_bad_choice(std::string_view flag, std::string_view text,
                                   std::string_view choices);

template <class T>
T choice_value(std::string_view flag, std::string_view text, std::span<const Choice<T>> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += names.empty() ? name : std::string(", ").append(name);
  }
  throw_bad_choice(flag, text, names);
}

}  // namespace ebb
