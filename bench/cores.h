// What the cores do beside kernels that only sleep: rates of Adam and of copies, for rehearsals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/load_gate.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"
#include "scheduler/plan/simulate.h"
#include "system/copy.h"
#include "system/thread_team.h"

namespace ebb::bench {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// What the cores do beside kernels that only sleep, each measured alone on all of them.
struct Cores {
  double update_bytes_per_s = 0;  ///< of Adam
  double copy_bytes_per_s = 0;
};

/// Measures them in a tenth of a second.
class CoresMeter {
 public:
  explicit CoresMeter(int threads)
      : device_(create_device({.num_threads = threads})), team_(threads) {
    for (int64_t i = 0; i < kElements; ++i) {  // weights and gradients of about 0.02
      const auto bits = static_cast<uint16_t>(0x3c80 | ((i * 40503) & 0x807f));
      std::memcpy(weight_.data() + 2 * i, &bits, 2);
      std::memcpy(gradient_.data() + 2 * i, &bits, 2);
    }
    for (const Buffer* plane : {&low_, &momentum_, &variance_}) {
      std::memset(plane->data(), 0, plane->bytes());
    }
  }

  Cores measure() {
    const double update_s = median_seconds([&] {
      adamw_update(team_, planes(), kElements, {.learning_rate = 1e-4, .t = ++t_}, 1, 1);
    });
    const double copy_s = median_seconds([&] {
      team_.for_each(kElements / kPiece, [&](int64_t i) {
        const int64_t at = 4 * i * kPiece;
        copy_bytes(momentum_.data() + at, variance_.data() + at, 4 * kPiece);
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
      const auto start = Clock::now();
      body();
      seconds.push_back(seconds_since(start));
    }
    return median(seconds);
  }
  Buffer take(size_t element_bytes) {
    return device_->allocate(MemoryKind::Pageable, kElements * element_bytes, "planes");
  }
  Planes planes() {
    return {.weight = weight_.data(),
            .low = reinterpret_cast<int16_t*>(low_.data()),
            .momentum = reinterpret_cast<float*>(momentum_.data()),
            .variance = reinterpret_cast<float*>(variance_.data()),
            .gradient = gradient_.data(),
            .weight_dtype = DType::BF16,
            .gradient_dtype = DType::BF16};
  }

  std::unique_ptr<Device> device_;
  ThreadTeam team_;
  Buffer weight_ = take(2), low_ = take(2), momentum_ = take(4), variance_ = take(4),
         gradient_ = take(2);
  int64_t t_ = 0;
};

}  // namespace ebb::bench
