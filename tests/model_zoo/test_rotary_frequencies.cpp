// The rotary frequencies of published configurations equal those of transformers. Invalid
// configurations are rejected.
#include <gtest/gtest.h>

#include <cmath>

#include "device/errors.h"
#include "tests/model_zoo/reference_run.h"

namespace ebb::test {
namespace {

TEST(RotaryFrequencies, EqualThoseOfTransformers) {
  const nlohmann::json all = read_fixture("rotary");
  EXPECT_EQ(all.size(), 7u);
  for (const auto& [name, expected] : all.items()) {
    const Rotary rotary = read_rotary(expected.at("rotary"));
    const std::vector<double> own = rotary_frequencies(rotary, expected.at("head_dim"));
    const std::vector<double> want = expected.at("frequencies");
    ASSERT_EQ(own.size(), want.size()) << name;
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_NEAR(own[i] / want[i], 1, 1e-12) << name << ", pair " << i;
    }
    EXPECT_NEAR(rotary_factor(rotary), expected.at("factor"), 1e-14) << name;
  }
}

struct Refusal {
  Rotary rotary;
  int64_t head_dim = 8;
  const char* named;
};

TEST(RotaryFrequencies, InvalidConfigurationsAreRejectedWithTheirNumbers) {
  const Refusal refusals[] = {
      {.rotary = {}, .head_dim = 7, .named = "7"},
      {.rotary = {.theta = 0}, .named = "theta"},
      {.rotary = {.scaling = RotaryScaling::Linear, .factor = -2}, .named = "-2"},
      {.rotary = {.scaling = RotaryScaling::Llama3, .factor = 8}, .named = "original_max_position"},
      {.rotary = {.scaling = RotaryScaling::Llama3,
                  .factor = 8,
                  .low_freq_factor = 4,
                  .high_freq_factor = 3,
                  .original_max_positions = 64},
       .named = "high_freq_factor is 3"},
      {.rotary = {.scaling = RotaryScaling::Yarn, .factor = 4}, .named = "original_max_position"},
      {.rotary =
           {.theta = 1, .scaling = RotaryScaling::Yarn, .factor = 4, .original_max_positions = 64},
       .named = "theta"},
      {.rotary = {.scaling = RotaryScaling::Yarn,
                  .factor = 4,
                  .original_max_positions = 64,
                  .beta_slow = std::nan("")},
       .named = "beta_slow"},
  };
  for (const Refusal& r : refusals) {
    try {
      rotary_frequencies(r.rotary, r.head_dim);
      ADD_FAILURE() << r.named << ": accepted";
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find(r.named), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace ebb::test
