// The error of AdamW against fp64 after many steps is no larger than the recorded error of
// DeepSpeed's CPU Adam after the same steps (bench/peers/adam_error.py). Mistakes make it larger.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "system/thread_team.h"
#include "tests/cpu_adam/reference.h"
#include "tests/cpu_adam/state.h"

namespace ebb::test {
namespace {

using Json = nlohmann::json;

uint64_t hash(uint64_t stream, uint64_t i) {
  uint64_t x = ((stream << 32) + i + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

float master_at(uint64_t i) {
  const double unit = static_cast<double>(hash(0, i) >> 40) * 0x1p-24;
  return static_cast<float>((unit - 0.5) * 0.08);
}

// Magnitudes from 2^-13 to 2^-5, exact in bf16.
float gradient_at(int64_t t, uint64_t i) {
  const uint64_t x = hash(static_cast<uint64_t>(t), i);
  const uint64_t bits = ((x >> 63) << 31) | ((uint64_t{114} << 23) + (((x >> 53) & 0x3FFu) << 16));
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}

/// A run of DeepSpeed, and the largest and mean error of its masters.
struct Recorded {
  int64_t num_elements;
  int64_t num_steps;
  double learning_rate;
  AdamW adam;
  double max, mean;
};

std::vector<Recorded> read_fixture() {
  std::ifstream file(EBB_FIXTURES "/deepspeed_adam.json");
  const Json json = Json::parse(file);
  const auto first = [&](const char* name) { return json.at(name).get<std::vector<float>>(); };
  const std::vector<float> masters = first("first_masters"), gradients = first("first_gradients");
  for (uint64_t i = 0; i < masters.size(); ++i) EXPECT_EQ(master_at(i), masters[i]) << i;
  for (uint64_t i = 0; i < gradients.size(); ++i) EXPECT_EQ(gradient_at(1, i), gradients[i]) << i;
  std::vector<Recorded> result;
  for (const Json& run : json.at("runs")) {
    result.push_back({.num_elements = json.at("elements"),
                      .num_steps = json.at("steps"),
                      .learning_rate = run.at("learning_rate"),
                      .adam = {.beta1 = run.at("beta1"),
                               .beta2 = run.at("beta2"),
                               .epsilon = run.at("epsilon"),
                               .weight_decay = run.at("weight_decay")},
                      .max = run.at("deepspeed").at("max"),
                      .mean = run.at("deepspeed").at("mean")});
  }
  return result;
}

AdamWStep step_at(const Recorded& run, int64_t t) {
  return {.learning_rate = run.learning_rate, .adam = run.adam, .t = t};
}

std::vector<float> first_masters(const Recorded& run) {
  std::vector<float> masters(static_cast<size_t>(run.num_elements));
  for (size_t i = 0; i < masters.size(); ++i) masters[i] = master_at(i);
  return masters;
}

std::vector<float> gradients_at(const Recorded& run, int64_t t) {
  std::vector<float> gradients(static_cast<size_t>(run.num_elements));
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = gradient_at(t, i);
  return gradients;
}

/// The masters after the same steps in fp64.
Eigen::ArrayXd train_in_fp64(const Recorded& run) {
  Reference reference(first_masters(run));
  for (int64_t t = 1; t <= run.num_steps; ++t) {
    reference.update(gradients_at(run, t), step_at(run, t), 1, 1);
  }
  return reference.masters();
}

enum class Mistake { None, RateOffByOneIn100000, DroppedLow };

std::vector<float> train(const Recorded& run, Types types, Mistake mistake) {
  ThreadTeam team(2);
  State state(run.num_elements, types);
  write_masters(state.planes(), first_masters(run));
  const double factor = mistake == Mistake::RateOffByOneIn100000 ? 1 + 1e-5 : 1;
  for (int64_t t = 1; t <= run.num_steps; ++t) {
    const std::vector<float> gradients = gradients_at(run, t);
    for (size_t i = 0; i < gradients.size(); ++i) {
      state.set_gradient(static_cast<int64_t>(i), gradients[i]);
    }
    adamw_update(team, state.planes(), run.num_elements, step_at(run, t), 1, factor);
    if (mistake == Mistake::DroppedLow) {
      std::fill_n(named(state.planes()).low, run.num_elements, int16_t{0});
    }
  }
  return state.masters();
}

struct Distance {
  double max = 0, mean = 0;
};

Distance distance(const Recorded& run, Types types, Mistake mistake = Mistake::None) {
  const std::vector<float> masters = train(run, types, mistake);
  const Eigen::Map<const Eigen::ArrayXf> ours(masters.data(), run.num_elements);
  const Eigen::ArrayXd error = (ours.cast<double>() - train_in_fp64(run)).abs();
  return {error.maxCoeff(), error.mean()};
}

constexpr Types kFp32 = {DType::F32, DType::F32};
constexpr Types kSplit = {DType::BF16, DType::BF16};

TEST(AdamWError, IsNoLargerThanTheErrorOfDeepSpeed) {
  const std::vector<Recorded> runs = read_fixture();
  ASSERT_FALSE(runs.empty());
  for (const Recorded& run : runs) {
    for (const Types types : {kFp32, kSplit}) {
      const Distance ours = distance(run, types);
      SCOPED_TRACE(testing::Message() << name_of_types(types) << ", rate " << run.learning_rate
                                      << ", beta2 " << run.adam.beta2);
      EXPECT_LE(ours.max, run.max);
      EXPECT_LE(ours.mean, run.mean);
      EXPECT_GT(ours.max, 0);
    }
  }
}

TEST(AdamWError, IsLargerWithAMistake) {
  const Recorded run = read_fixture().front();
  for (const Types types : {kFp32, kSplit}) {
    const Distance wrong_rate = distance(run, types, Mistake::RateOffByOneIn100000);
    EXPECT_GT(wrong_rate.max, run.max);
    EXPECT_GT(wrong_rate.mean, run.mean);
  }
  const Distance no_low = distance(run, kSplit, Mistake::DroppedLow);
  EXPECT_GT(no_low.max, run.max);
  EXPECT_GT(no_low.mean, run.mean);
}

}  // namespace
}  // namespace ebb::test
