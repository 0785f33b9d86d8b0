// Advice to make a training faster. The tests plan each suggested change and expect the predicted
// gain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>

#include "tools/advice.h"

namespace ebb {
namespace {

/// A machine with a link of the given rate.
PlanContext context(double load_bytes_per_s) {
  return {.machine = {.name = "a test's",
                      .device = "",
                      .device_memory_bytes = size_t{1} << 30,
                      .host_memory_bytes = size_t{16} << 30,
                      .rates = {.flops_per_s = 1e11,
                                .device_bytes_per_s = 1e11,
                                .load_bytes_per_s = load_bytes_per_s,
                                .store_bytes_per_s = load_bytes_per_s,
                                .update_bytes_per_s = 1e11}}};
}

TrainOptions toy() {
  TrainOptions options;
  options.preset = "toy-bytes";
  options.chunk_size = 256 << 10;
  options.seq_length = 32;
  options.max_grad_norm = 0;
  return options;
}

double tokens_per_second(const TrainOptions& options, const PlanContext& where) {
  return plan_step_of(options, where).tokens_per_second();
}

TEST(Advice, MoreDeviceMemoryIfTheLinkIsSlow) {
  TrainOptions options = toy();
  options.device_memory = 3 << 20;
  const PlanContext slow = context(1e8);
  const auto gain = best_gain(options, slow);
  ASSERT_TRUE(gain);
  ASSERT_TRUE(gain->change.text.starts_with("--device-memory ")) << gain->change.text;
  EXPECT_EQ(gain->change.price, "");
  TrainOptions changed = options;
  changed.device_memory = std::stoull(gain->change.text.substr(16)) << 20;
  // The flag is the planned size, rounded up to a whole MiB.
  EXPECT_NEAR(tokens_per_second(changed, slow) / gain->change.tokens_per_second, 1, 0.02);
  EXPECT_NEAR(gain->change.tokens_per_second / tokens_per_second(options, slow), gain->ratio, 1e-9);
  EXPECT_GE(gain->ratio, kLeastGain);
}

TEST(Advice, LeavesFixedFlagsToThePlanner) {
  TrainOptions options = toy();
  options.schedule.recompute = kRecomputeEach;
  const PlanContext fast = context(1e12);
  const auto gain = best_gain(options, fast);
  ASSERT_TRUE(gain);
  EXPECT_EQ(gain->change.text, "--recompute auto");
  options.schedule.recompute.reset();
  EXPECT_NEAR(tokens_per_second(options, fast), gain->change.tokens_per_second, 1e-6);
}

TEST(Advice, ALongerStepIfTheHostUpdateIsSlow) {
  TrainOptions options = toy();
  options.device_memory = 3 << 20;  // too little for device updates
  PlanContext slow = context(1e12);
  slow.machine.device_memory_bytes = 3 << 20;
  slow.machine.rates.update_bytes_per_s = 1e8;
  const auto gain = best_gain(options, slow);
  ASSERT_TRUE(gain);
  EXPECT_EQ(gain->change.text, "--gradient-accumulation 2");
  EXPECT_EQ(gain->change.price, "twice the tokens a step");
}

TEST(Advice, NothingIfComputeIsTheBound) {
  PlanContext fast = context(1e15);
  fast.machine.rates.update_bytes_per_s = 1e15;
  EXPECT_FALSE(best_gain(toy(), fast));
}

TEST(Advice, NothingWithoutRatesOrIfNothingFits) {
  PlanContext unknown = context(1e8);
  unknown.machine.rates = {};
  TrainOptions options = toy();
  EXPECT_FALSE(best_gain(options, unknown));
  options.device_memory = 1 << 10;
  EXPECT_FALSE(best_gain(options, context(1e8)));
}

/// The first change of each kind.
std::string changes_for(Goal goal, const RunFlags& flags, bool on_gpu) {
  std::string text;
  for (const Alternatives& alternatives : flag_changes(flags, goal, on_gpu)) {
    if (!alternatives.empty()) text += alternatives.front().text + "; ";
  }
  return text;
}

TEST(Advice, TriesTheChangesThatCanHelpWithItsGoal) {
  RunFlags flags{.options = toy(), .max_tokens = 8};
  flags.options.seq_length = 128;
  flags.options.chunk_size = size_t{4} << 20;
  flags.options.dtype = DType::F32;
  flags.options.max_grad_norm = 1;
  flags.options.gradient_accumulation = 2;
  flags.options.schedule.update = UpdateOrder::Wait;
  const std::string free = "--update auto; ";
  EXPECT_EQ(changes_for(Goal::FitHost, flags, true),
            free + "--clip 0; --dtype bf16; --micro-batch-size 2; ");
  EXPECT_EQ(changes_for(Goal::FitDevice, flags, true),
            free +
                "--clip 0; --dtype bf16; --attention ebb; --micro-batch-size 2 "
                "--gradient-accumulation 4; --chunk-size 2MiB; --seq-length 64; ");
  EXPECT_EQ(changes_for(Goal::FitDevice, flags, false),
            free +
                "--clip 0; --dtype bf16; --micro-batch-size 2 --gradient-accumulation 4; "
                "--chunk-size 2MiB; --seq-length 64; ");
  EXPECT_EQ(changes_for(Goal::FitInference, flags, true),
            "--dtype bf16; --micro-batch-size 2; --max-tokens 4; --chunk-size 2MiB; ");
  EXPECT_EQ(changes_for(Goal::Faster, flags, true),
            free +
                "--chunk-size 2MiB; --chunk-size 8MiB; --micro-batch-size 8 "
                "--gradient-accumulation 1; --dtype bf16; --gradient-accumulation 4; ");
  flags.options.dtype = DType::F16;
  EXPECT_EQ(changes_for(Goal::Faster, flags, true).find("--dtype"), std::string::npos);
}

/// The alternatives that contain a text.
std::string alternatives_with(std::string_view part, Goal goal, const RunFlags& flags) {
  std::string text;
  for (const Alternatives& alternatives : flag_changes(flags, goal, true)) {
    for (const FlagChange& change : alternatives) {
      if (change.text.find(part) == change.text.npos) continue;
      text += fmt::format("{} ({}); ", change.text, change.price);
    }
  }
  return text;
}

TEST(Advice, CombinesTheChangesThatSaveHostMemory) {
  RunFlags flags{.options = toy()};
  flags.options.max_grad_norm = 1;
  EXPECT_EQ(alternatives_with("--clip", Goal::FitHost, flags),
            "--clip 0 (gradients are not clipped); "
            "--clip 0 --micro-batch-size 2 (gradients are not clipped, fewer tokens a step); "
            "--clip 0 --micro-batch-size 1 (gradients are not clipped, fewer tokens a step); ");
  EXPECT_EQ(alternatives_with("--clip", Goal::FitDevice, flags),
            "--clip 0 (gradients are not clipped); ");
  flags.options.max_grad_norm = 0;
  EXPECT_EQ(alternatives_with("--clip", Goal::FitHost, flags), "");
}

TEST(Advice, ChunksAreHalvedTo512KiB) {
  RunFlags flags{.options = toy()};
  flags.options.chunk_size = size_t{3} << 20;
  EXPECT_EQ(alternatives_with("--chunk-size", Goal::FitDevice, flags),
            "--chunk-size 1536KiB (); --chunk-size 768KiB (); ");
  flags.options.chunk_size = size_t{2} << 20;
  EXPECT_EQ(alternatives_with("--chunk-size", Goal::FitDevice, flags),
            "--chunk-size 1MiB (); --chunk-size 512KiB (); ");
}

TEST(Advice, IsOneLineOfText) {
  EXPECT_EQ(format_gain(Gain{{.text = "--dtype bf16", .price = "less precise"}, 1.5}),
            "--dtype bf16 (less precise): 1.50 x the tokens/s, as predicted");
  EXPECT_EQ(format_gain(Gain{{.text = "--update auto"}, 1.25}),
            "--update auto: 1.25 x the tokens/s, as predicted");
  EXPECT_EQ(format_gain(std::nullopt),
            "no single change of a flag is predicted to give 5 % more tokens/s");
}

}  // namespace
}  // namespace ebb
