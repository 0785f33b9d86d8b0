// Checks that the constructors of all architectures share. Pure functions; they throw ConfigError.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "device/errors.h"

namespace ebb {

inline void check_positive(std::string_view what, int64_t value) {
  if (value <= 0) throw ConfigError(fmt::format("{} is {}: it must be at least 1", what, value));
}

inline void check_divides(std::string_view what, int64_t divisor, std::string_view of,
                          int64_t value) {
  if (value % divisor == 0) return;
  throw ConfigError(fmt::format("{} {} do not divide {} {}", divisor, what, value, of));
}

inline void check_length(int64_t length, int64_t max_positions) {
  check_positive("the sequence length", length);
  if (length <= max_positions) return;
  throw ConfigError(
      fmt::format("a sequence length of {} is beyond the model's {} positions; try "
                  "--seq-length {}",
                  length, max_positions, max_positions));
}

/// The length of the cache of keys and values for generation; 0: no cache.
inline void check_cache_length(int64_t cache_length, bool packed, int64_t max_positions) {
  if (cache_length == 0) return;
  check_positive("the length of the cache", cache_length);
  if (packed) throw ConfigError("packed documents and a cache of one text exclude each other");
  if (cache_length <= max_positions) return;
  throw ConfigError(
      fmt::format("a cache of {} positions is beyond the model's {}", cache_length, max_positions));
}

}  // namespace ebb
