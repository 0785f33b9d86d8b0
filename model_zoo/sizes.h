// Checks and arithmetic of sizes that the constructors of all architectures share. Sizes may come
// from a file of somebody else, so sums and products of them must not overflow. Pure functions;
// they throw ConfigError.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include "device/errors.h"

namespace ebb {

/// A number from 0 that becomes and stays the largest int64 instead of overflowing.
class Count {
 public:
  constexpr Count(int64_t value) : value_(value) {}  // NOLINT: numbers convert as in arithmetic
  constexpr int64_t value() const { return value_; }

  friend constexpr Count operator+(Count a, Count b) {
    int64_t sum = 0;
    return __builtin_add_overflow(a.value_, b.value_, &sum) ? most() : Count(sum);
  }
  friend constexpr Count operator*(Count a, Count b) {
    int64_t product = 0;
    return __builtin_mul_overflow(a.value_, b.value_, &product) ? most() : Count(product);
  }

 private:
  static constexpr Count most() { return std::numeric_limits<int64_t>::max(); }

  int64_t value_;
};

/// A plan of more layers would take minutes and gigabytes. The deepest published transformers have
/// about a thousand layers.
inline constexpr int64_t kMostLayers = 10'000;
/// Sums over parameters of at most 8 bytes stay far below 2^63.
inline constexpr int64_t kMostParameters = int64_t{1} << 50;

inline constexpr int64_t kMostHeadDim = 65'536;

inline void check_model_size(int64_t num_layers, uint64_t num_parameters) {
  if (num_layers > kMostLayers) {
    throw ConfigError(
        fmt::format("the number of layers is {}: allowed are 1 to {}", num_layers, kMostLayers));
  }
  if (num_parameters > static_cast<uint64_t>(kMostParameters)) {
    throw ConfigError(
        fmt::format("the sizes of the model give {:.3g} parameters: allowed are at most {:.3g}",
                    static_cast<double>(num_parameters), static_cast<double>(kMostParameters)));
  }
}

inline void check_positive(std::string_view what, int64_t value) {
  if (value <= 0) throw ConfigError(fmt::format("{} is {}: it must be at least 1", what, value));
}

inline void check_all_positive(std::initializer_list<std::pair<std::string_view, int64_t>> sizes) {
  for (const auto& [what, value] : sizes) check_positive(what, value);
}

inline void check_at_most(std::string_view what, int64_t value, int64_t most) {
  if (value <= most) return;
  throw ConfigError(fmt::format("{} is {}: it must be at most {}", what, value, most));
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
                  "`seq_length` {}",
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
