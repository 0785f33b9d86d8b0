// What the cores do beside kernels that only sleep: rates of Adam and of copies, for rehearsals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/load_gate.h"
#include "cpu_adam/adamw.h"
#include "device/device.h"
#include "device/host/copy.h"
#include "device/host/parallel.h"
#include "scheduler/simulate.h"

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

template <class Body>
double median_seconds(const Body& body) {
  std::vector<double> seconds;
  for (int i = 0; i < 15; ++i) {
    const auto start = Clock::now();
    body();
    seconds.push_back(seconds_since(start));
  }
  return median(seconds);
}

inline Cores measure_cores(int threads) {
  constexpr int64_t kElements = int64_t{32} << 20, kPiece = int64_t{1} << 20;
  const auto device = create_device({.num_threads = threads});
  const auto take = [&](size_t element_bytes) {
    return device->allocate(MemoryKind::Pageable, kElements * element_bytes, "planes");
  };
  const Buffer weight = take(2), low = take(2), momentum = take(4), variance = take(4),
               gradient = take(2);
  for (int64_t i = 0; i < kElements; ++i) {  // weights and gradients of about 0.02
    const auto bits = static_cast<uint16_t>(0x3c80 | ((i * 40503) & 0x807f));
    std::memcpy(weight.data() + 2 * i, &bits, 2);
    std::memcpy(gradient.data() + 2 * i, &bits, 2);
  }
  const Planes planes{.weight = weight.data(),
                      .low = reinterpret_cast<int16_t*>(low.data()),
                      .momentum = reinterpret_cast<float*>(momentum.data()),
                      .variance = reinterpret_cast<float*>(variance.data()),
                      .gradient = gradient.data(),
                      .weight_dtype = DType::BF16,
                      .gradient_dtype = DType::BF16};
  ThreadTeam team(threads);
  int64_t t = 0;
  const double update_s = median_seconds(
      [&] { adamw_update(team, planes, kElements, {.learning_rate = 1e-4, .t = ++t}, 1, 1); });
  const double copy_s = median_seconds([&] {
    team.for_each(kElements / kPiece, [&](int64_t i) {
      copy_bytes(variance.data() + 4 * i * kPiece, momentum.data() + 4 * i * kPiece, 4 * kPiece);
    });
  });
  constexpr double kCount = static_cast<double>(kElements);
  return {.update_bytes_per_s =
              update_bytes_per_parameter(DType::BF16, DType::BF16) * kCount / update_s,
          .copy_bytes_per_s = 4 * kCount / copy_s};
}

}  // namespace ebb::bench
