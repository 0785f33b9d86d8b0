// Measures how fast the cores run Adam and copy. Benchmarks of steps compare with these rates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/planes_memory.h"
#include "scheduler/plan/simulate.h"
#include "system/clock.h"
#include "system/copy.h"
#include "system/thread_team.h"

namespace ebb::bench {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Each rate is measured alone, on all cores.
struct CoreRates {
  double update_bytes_per_s = 0;  ///< of Adam
  double copy_bytes_per_s = 0;
};

/// Measures them in a tenth of a second.
class CoreRatesMeter {
 public:
  explicit CoreRatesMeter(int num_threads) : team_(num_threads) {
    for (int64_t i = 0; i < kElements; ++i) {  // weights and gradients of about 0.02
      const auto bits = static_cast<uint16_t>(0x3c80 | ((i * 40503) & 0x807f));
      std::memcpy(planes_[0] + 2 * i, &bits, 2);
      std::memcpy(const_cast<std::byte*>(planes_.gradient) + 2 * i, &bits, 2);
    }
  }

  CoreRates measure() {
    const double update_s = median_seconds(
        [&] { adamw_update(team_, planes_, kElements, {.learning_rate = 1e-4, .t = ++t_}, 1, 1); });
    const double copy_s = median_seconds([&] {
      team_.for_each(kElements / kPiece, [&](int64_t i) {
        const auto [momentum, variance] = moments_of(planes_);
        copy_bytes(momentum + i * kPiece, variance + i * kPiece, 4 * kPiece);
      });
    });
    constexpr double kCount = static_cast<double>(kElements);
    return {.update_bytes_per_s =
                update_bytes_per_parameter(DType::BF16, DType::BF16) * kCount / update_s,
            .copy_bytes_per_s = 4 * kCount / copy_s};
  }

 private:
  static constexpr int64_t kElements = int64_t{32} << 20, kPiece = int64_t{1} << 20;

  template <class Body>
  static double median_seconds(const Body& body) {
    std::vector<double> seconds;
    for (int i = 0; i < 5; ++i) {
      const double start_s = steady_now_s();
      body();
      seconds.push_back(steady_now_s() - start_s);
    }
    return median(seconds);
  }

  ThreadTeam team_;
  HugePages memory_{planes_bytes(kElements)};
  Planes planes_ = planes_in(memory_, DType::BF16, DType::BF16, kElements);
  int64_t t_ = 0;
};

}  // namespace ebb::bench
