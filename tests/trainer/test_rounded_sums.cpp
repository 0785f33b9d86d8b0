// Sums of groups that are rounded to bf16: the gradient is exactly what the definition says, and
// neither the number of ranks nor the place of the sums changes a bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/ignored_label.h"
#include "model_zoo/llama.h"
#include "scheduler/search/memory_sizes.h"
#include "tests/trainer/checkpoint_cases.h"
#include "tests/trainer/identity.h"

namespace ebb::test {
namespace {

constexpr uint32_t kMicroBatches = 4;
constexpr int64_t kTokens = 16;  // of a sequence

/// With a tied head, the embedding is used twice. Otherwise the same values are two parameters.
LlamaConfig small_llama(bool tied_head) {
  return {.vocabulary = 97,
          .channels = 64,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 2,
          .head_dim = 32,
          .mlp_channels = 96,
          .max_positions = kTokens,
          .tied_head = tied_head};
}
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

/// The inputs of a step in which only the micro-batches of `kept` have targets. All have the same
/// numbers of targets as before, so the gradients of the others are those of the whole step.
std::vector<MicroBatch> only(const std::vector<MicroBatch>& all, IndexRange kept) {
  static std::vector<int32_t> ignored(kMicroBatchSize * kTokens, kIgnoredLabel);
  std::vector<MicroBatch> batches = all;
  for (uint32_t k = 0; k < batches.size(); ++k) {
    if (k - kept.first >= kept.count) {
      batches[k].inputs.back().data = reinterpret_cast<std::byte*>(ignored.data());
    }
  }
  return batches;
}

/// Without clipping and with a beta1 of 0, the momentum after one step is the gradient.
TrainerOptions options_of(DType dtype, std::optional<DType> gradient_dtype, uint32_t groups,
                          DType group_dtype) {
  return {.dtype = dtype,
          .gradient_dtype = gradient_dtype,
          .chunk_bytes = kPieceElements * size_of(dtype),
          .gradient_accumulation = kMicroBatches,
          .groups = groups,
          .group_dtype = group_dtype,
          .adam = {.beta1 = 0},
          .max_grad_norm = 0};
}

Values32 gradients_of(bool tied_head, const TrainerOptions& options, const Values32& weights,
                      const std::vector<MicroBatch>& micro_batches) {
  const Llama model(small_llama(tied_head), kMicroBatchSize, kTokens, options.dtype);
  const Preparation prepared = prepare(model, options, {.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1},
                                     .memory_bytes = prepared.ledger.total(Tier::Device),
                                     .poison = true});
  Trainer trainer(model, *device, prepared);
  for (const Parameter& p : model.parameters()) {
    trainer.write_parameter(p.name, weights.at(p.name == kHead ? kEmbedding : p.name));
  }
  trainer.step(micro_batches, 1e-3);
  return momenta_of(trainer);
}

Values32 initial_weights() {
  const Llama model(small_llama(true), kMicroBatchSize, kTokens, DType::F32);
  const TrainerOptions options = options_of(DType::F32, {}, 1, DType::F32);
  const Preparation prepared = prepare(model, options, {.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1}});
  Trainer trainer(model, *device, prepared);
  return masters_of(trainer);
}

/// What the mode computes, written plainly: each group's sum of each use, rounded once, added in
/// fp32 in the order of the groups; then the uses are added, and the sum is rounded to `type`.
float defined_sum(const std::vector<std::vector<float>>& uses, DType group_dtype, DType type) {
  float sum = 0;
  for (size_t use = 0; use < uses.size(); ++use) {
    float of_use = 0;
    for (size_t g = 0; g < uses[use].size(); ++g) {
      const float of_group =
          group_dtype == DType::BF16 ? static_cast<float>(BF16(uses[use][g])) : uses[use][g];
      of_use = g == 0 ? of_group : of_use + of_group;
    }
    sum = use == 0 ? of_use : sum + of_use;
  }
  return type == DType::F32 ? sum : static_cast<float>(BF16(sum));
}

struct Step {
  Values32 weights = initial_weights();
  Data data{{.vocabulary = 97}, kTokens, kMicroBatches, 7};
};

/// [group] the fp32 gradients of its micro-batches alone, with the head as a parameter of its own.
std::vector<Values32> gradients_of_groups(const Step& step, DType dtype, uint32_t num_groups) {
  std::vector<Values32> groups;
  for (uint32_t g = 0; g < num_groups; ++g) {
    groups.push_back(
        gradients_of(false, options_of(dtype, DType::F32, 1, DType::F32), step.weights,
                     only(step.data.micro_batches(), part_of(kMicroBatches, g, num_groups))));
  }
  return groups;
}

/// How many elements of the gradient are not those of the definition for these types.
size_t count_differences(const Values32& gradients, const std::vector<Values32>& groups,
                         DType group_dtype, DType type) {
  size_t count = 0;
  for (const auto& [name, values] : gradients) {
    std::vector<std::string> names = {name};
    if (name == kEmbedding) names.push_back(kHead);
    for (size_t i = 0; i < values.size(); ++i) {
      std::vector<std::vector<float>> uses;
      for (const std::string& use : names) {
        uses.emplace_back();
        for (const Values32& group : groups) uses.back().push_back(group.at(use)[i]);
      }
      count += values[i] != defined_sum(uses, group_dtype, type);
    }
  }
  return count;
}

/// Groups of one micro-batch and of two, and gradients in both types.
TEST(RoundedSums, AreWhatTheDefinitionSays) {
  const Step step;
  for (const DType dtype : {DType::BF16, DType::F32}) {
    for (const uint32_t num_groups : {2u, kMicroBatches}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + ", groups " + std::to_string(num_groups));
      const std::vector<Values32> groups = gradients_of_groups(step, dtype, num_groups);
      for (const DType group_dtype : {DType::F32, DType::BF16}) {
        const Values32 gradients =
            gradients_of(true, options_of(dtype, {}, num_groups, group_dtype), step.weights,
                         step.data.micro_batches());
        const DType other = group_dtype == DType::F32 ? DType::BF16 : DType::F32;
        EXPECT_EQ(count_differences(gradients, groups, group_dtype, dtype), 0u);
        EXPECT_GT(count_differences(gradients, groups, other, dtype), 1000u);
      }
    }
  }
}

/// Planted: a gradient to which one group contributes its fp32 sum is not that of the definition.
TEST(RoundedSums, PlantedAGroupThatIsNotRoundedIsFound) {
  const Step step;
  const std::vector<Values32> groups = gradients_of_groups(step, DType::BF16, 2);
  std::vector<Values32> own_is_exact = groups;
  for (auto& [name, values] : own_is_exact[1]) {
    for (float& x : values) x = static_cast<float>(BF16(x));
  }
  const Values32 gradients = gradients_of(true, options_of(DType::BF16, {}, 2, DType::BF16),
                                          step.weights, step.data.micro_batches());
  EXPECT_GT(count_differences(gradients, own_is_exact, DType::F32, DType::BF16), 1000u);
}

// ---- Any number of ranks, any place of the sums

/// The reference is one rank, whose groups wait in host memory. Each group is one micro-batch, or
/// two.
TEST(RoundedSums, GiveTheBitsOfOneRankOnAnyNumber) {
  IdentityCheck check;
  for (const uint32_t groups : {3u, 6u}) {
    for (const uint32_t num_ranks : {1u, 2u, 3u}) {
      for (const bool on_devices : {false, true}) {
        check.run(
            {.clip = groups == 3,
             .accumulation = 6,
             .memory = Memory::Smallest,
             .num_threads = 2,
             .order = num_ranks == 2 ? MicroBatchOrder::Horizontal : MicroBatchOrder::Vertical,
             .num_steps = 2,
             .num_ranks = num_ranks,
             .sums_on_devices = on_devices,
             .groups = groups,
             .group_dtype = DType::BF16});
      }
    }
  }
}

TEST(RoundedSums, GiveTheBitsOfOneRankOnSeveralMachines) {
  IdentityCheck check;
  check.run({.accumulation = 4,
             .memory = Memory::Smallest,
             .num_steps = 2,
             .num_ranks = 4,
             .num_machines = 2,
             .group_dtype = DType::BF16});
  check.run({.clip = false,
             .accumulation = 3,
             .memory = Memory::Smallest,
             .between = Between::Weights,
             .num_steps = 2,
             .num_ranks = 3,
             .num_machines = 3,
             .group_dtype = DType::BF16});
}

TEST(RoundedSums, GiveTheBitsOfOneRankInEachSchedule) {
  IdentityCheck check;
  check_few_schedules(check, {.accumulation = 3,
                              .evaluation_batches = 2,
                              .dropout = 0.2f,
                              .num_ranks = 2,
                              .group_dtype = DType::BF16});
  check.run({.dtype = DType::F16,
             .accumulation = 3,
             .between = Between::State,
             .num_steps = 2,
             .num_ranks = 3,
             .sums_on_devices = true,
             .group_dtype = DType::BF16});
}

/// The mode changes nothing if there is only one group.
TEST(RoundedSums, AreAPartOfTheArithmetic) {
  const auto hash_of = [](uint32_t groups, DType group_dtype) {
    return train({.accumulation = 2, .num_steps = 2, .groups = groups, .group_dtype = group_dtype})
        .outcome.hash;
  };
  EXPECT_EQ(hash_of(1, DType::BF16), hash_of(1, DType::F32));
  EXPECT_NE(hash_of(2, DType::BF16), hash_of(2, DType::F32));
}

TEST(RoundedSums, OtherTypesAreRefused) {
  try {
    train({.accumulation = 2, .group_dtype = DType::F16});
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "`group_dtype` fp16: sums of groups are stored in fp32 or bf16");
  }
}

// ---- Bytes

Preparation prepared_with(DType group_dtype, bool on_devices) {
  const TrainingCase run{.accumulation = 4,
                         .memory = Memory::Smallest,
                         .order = MicroBatchOrder::Vertical,
                         .num_ranks = 2,
                         .sums_on_devices = on_devices,
                         .groups = 2,
                         .group_dtype = group_dtype};
  return prepare_case(Gpt2(run.model, kMicroBatchSize, run.length, run.dtype), run);
}

size_t moved_sums(const Preparation& p) {
  size_t bytes = 0;
  for (const Op& op : p.plan.ops) {
    if (stores_sums(op)) bytes += bytes_of_move(op, *p.layout, p.division);
  }
  return bytes;
}

TEST(RoundedSums, TakeHalfOfTheBytes) {
  for (const bool on_devices : {false, true}) {
    const Preparation exact = prepared_with(DType::F32, on_devices);
    const Preparation rounded = prepared_with(DType::BF16, on_devices);
    ASSERT_GT(moved_sums(exact), 0u);
    EXPECT_EQ(2 * moved_sums(rounded), moved_sums(exact));
    ASSERT_EQ(rounded.plan.sum_slots, exact.plan.sum_slots);
    const size_t chunk_bytes = exact.layout->chunk_bytes();
    const auto bytes = [&](const Preparation& p, Tier tier) {
      return p.ledger.bytes(kSumsOfGroups, tier);
    };
    const size_t slots = exact.plan.sum_slots * chunk_bytes;
    if (on_devices) {
      EXPECT_EQ(bytes(exact, Tier::Device), slots);
      EXPECT_EQ(bytes(rounded, Tier::Device),
                (slots / 2 + chunk_bytes - 1) / chunk_bytes * chunk_bytes);
    } else {
      EXPECT_EQ(rounded.plan.stored_bytes, exact.plan.stored_bytes - moved_sums(rounded));
      EXPECT_EQ(bytes(exact, Tier::Host) - bytes(rounded, Tier::Host), slots / 2);
      EXPECT_EQ(bytes(exact, Tier::Device), 0u);
      EXPECT_EQ(bytes(rounded, Tier::Device), chunk_bytes / 2) << "where sums are rounded";
    }
  }
}

}  // namespace
}  // namespace ebb::test
