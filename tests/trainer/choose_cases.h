// What the tests of the planner's choice share: machines with known rates, and a small model.
#pragma once

#include <gtest/gtest.h>

#include "scheduler/search/preparation.h"
#include "tests/trainer/cases.h"

namespace ebb::test {

inline constexpr double kGB = 1e9;

constexpr Machine gpu(double flops, double link, double update) {
  return {.flops_per_s = flops,
          .device_bytes_per_s = 500 * kGB,
          .load_bytes_per_s = link,
          .store_bytes_per_s = link,
          .update_bytes_per_s = update};
}
constexpr Machine host(double link, double copy) {
  return {.flops_per_s = 300 * kGB,
          .device_bytes_per_s = 40 * kGB,
          .load_bytes_per_s = link,
          .store_bytes_per_s = link,
          .update_bytes_per_s = 50 * kGB,
          .shared_cores = true,
          .copy_bytes_per_s = copy};
}

inline double seconds(const Preparation& p) { return p.candidates[p.chosen].seconds; }

class ChooseTest : public testing::Test {
 protected:
  static TrainerOptions open(uint32_t accumulation) {
    TrainerOptions options = TrainingCase{.accumulation = accumulation}.options();
    options.schedule.recompute.reset();
    options.schedule.micro_batch_order.reset();
    options.schedule.update.reset();
    return options;
  }
  size_t resident(TrainerOptions options, Recompute recompute, MicroBatchOrder order) const {
    options.schedule.recompute = recompute;
    options.schedule.micro_batch_order = order;
    return prepare(model_, options, {.device = {.num_threads = 1}}).full_device_bytes;
  }
  size_t smallest(TrainerOptions options, Recompute recompute) const {
    options.schedule.recompute = recompute;
    return prepare(model_, options, {.device = {.num_threads = 1}}).smallest_device_bytes;
  }
  Preparation choose_in(const TrainerOptions& options, size_t bytes, const Machine& machine) const {
    return prepare(model_, options, {.device_memory = bytes, .device = {.num_threads = 1}},
                   machine);
  }
  const Gpt2 model_{small_gpt(), kMicroBatchSize, kLength, DType::BF16};
};

}  // namespace ebb::test
