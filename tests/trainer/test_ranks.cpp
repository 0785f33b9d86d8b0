// Training on any number of ranks gives the same bits as on one.
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <thread>

#include "comm/thread_ranks.h"
#include "tests/trainer/identity.h"
#include "tests/trainer/planted.h"

namespace ebb::test {
namespace {

/// Few runs, with the schedules in which ranks meet most often, for ThreadSanitizer. With state on
/// devices, weights are read there.
TEST(RankRaces, ThereAreNone) {
  IdentityCheck check;
  for (const bool clip : {true, false}) {
    for (const bool on_devices : {false, true}) {
      check.run({.clip = clip,
                 .accumulation = 3,
                 .memory = Memory::Smallest,
                 .num_threads = 2,
                 .order = MicroBatchOrder::Vertical,
                 .between = on_devices ? Between::State
                            : clip     ? Between::Nothing
                                       : Between::Weights,
                 .evaluation_batches = 1,
                 .num_steps = 2,
                 .num_ranks = 3,
                 .sums_on_devices = on_devices});
    }
  }
}

TEST(RankRaces, ThereAreNoneInTheMemoryOfDevices) {
  IdentityCheck check;
  check.run({.accumulation = 2,
             .memory = Memory::Smallest,
             .num_threads = 2,
             .order = MicroBatchOrder::Vertical,
             .num_steps = 2,
             .num_ranks = 2,
             .sums_on_devices = true});
}

/// Sums are rounded on the store stream.
TEST(RankRaces, ThereAreNoneWhereSumsAreRounded) {
  IdentityCheck check;
  for (const bool on_devices : {false, true}) {
    check.run({.accumulation = 4,
               .memory = Memory::Smallest,
               .num_threads = 2,
               .order = MicroBatchOrder::Vertical,
               .num_steps = 2,
               .num_ranks = 2,
               .sums_on_devices = on_devices,
               .group_dtype = DType::BF16});
  }
}

/// The same with ranks that cannot address the memory of each other.
TEST(RankRaces, ThereAreNoneBetweenMachines) {
  IdentityCheck check;
  for (const bool clip : {true, false}) {
    check.run({.clip = clip,
               .accumulation = 2,
               .memory = Memory::Smallest,
               .num_threads = 2,
               .order = MicroBatchOrder::Vertical,
               .between = clip ? Between::Nothing : Between::Weights,
               .evaluation_batches = 2,
               .num_steps = 2,
               .num_ranks = 2,
               .num_machines = 2});
  }
}

TEST(RankRaces, ThereAreNoneInCopiesOfWeights) {
  IdentityCheck check;
  for (const bool clip : {true, false}) {
    check.run({.clip = clip,
               .accumulation = 4,
               .memory = clip ? Memory::Smallest : Memory::Between,
               .order = MicroBatchOrder::Vertical,
               .between = clip ? Between::Nothing : Between::Weights,
               .num_steps = 2,
               .num_ranks = 4,
               .num_machines = 2,
               .copies_weights = true});
  }
}

/// Eight micro-batches, so that each of eight ranks has one.
TEST(Ranks, AnyNumberGivesTheBitsOfOne) {
  IdentityCheck check;
  for (const uint32_t num_ranks : {2u, 3u, 4u, 8u}) {
    for (const bool clip : {true, false}) {
      for (const MicroBatchOrder order : {MicroBatchOrder::Horizontal, MicroBatchOrder::Vertical}) {
        const bool is_small = clip == (order == MicroBatchOrder::Vertical);
        check.run({.clip = clip,
                   .accumulation = 8,
                   .memory = is_small ? Memory::Smallest : Memory::Resident,
                   .order = order,
                   .num_steps = 2,
                   .num_ranks = num_ranks});
      }
    }
  }
}

/// The reference is one rank, which adds the groups in host memory, too.
TEST(Ranks, GroupsGiveTheSameBitsOnAnyNumber) {
  IdentityCheck check;
  for (const uint32_t groups : {2u, 3u, 5u}) {
    for (const uint32_t num_ranks : {1u, 2u, 3u, 5u}) {
      if (num_ranks > groups) continue;
      check.run({.clip = groups == 3,
                 .accumulation = 6,
                 .memory = Memory::Smallest,
                 .order = num_ranks == 2 ? MicroBatchOrder::Vertical : MicroBatchOrder::Horizontal,
                 .num_steps = 2,
                 .num_ranks = num_ranks,
                 .groups = groups});
    }
  }
}

/// Groups change the rounding of sums, except for one group and for groups of one micro-batch.
TEST(Ranks, GroupsAreAPartOfTheArithmetic) {
  const auto hash_of = [](std::optional<uint32_t> groups) {
    return train({.dtype = DType::F32, .accumulation = 4, .num_steps = 2, .groups = groups})
        .outcome.hash;
  };
  const uint64_t by_default = hash_of({});
  EXPECT_EQ(hash_of(1), by_default);
  EXPECT_EQ(hash_of(4), by_default);
  EXPECT_NE(hash_of(2), by_default);
}

TEST(Ranks, EverySettingOfASchedule) {
  IdentityCheck check;
  check_few_schedules(
      check, {.accumulation = 3, .evaluation_batches = 2, .dropout = 0.2f, .num_ranks = 2});
  check_few_schedules(
      check,
      {.accumulation = 4, .evaluation_batches = 2, .dropout = 0.2f, .num_ranks = 4, .groups = 4});
}

/// The sums of groups wait in device memory. On one rank, three of its groups are added.
TEST(Ranks, SumsOnDevicesGiveTheBitsOfOne) {
  IdentityCheck check;
  check_few_schedules(check, {.accumulation = 4,
                              .evaluation_batches = 2,
                              .dropout = 0.2f,
                              .num_ranks = 3,
                              .sums_on_devices = true});
  check.run({.accumulation = 6,
             .memory = Memory::Smallest,
             .num_steps = 2,
             .sums_on_devices = true,
             .groups = 3});
}

/// Each rank has the state of some of its chunks on its device, and reads the weights and the state
/// of other chunks on the devices of the other ranks.
TEST(Ranks, StateOnDevicesGivesTheBitsOfOne) {
  IdentityCheck check;
  for (const DType dtype : {DType::BF16, DType::F16, DType::F32}) {
    for (const bool clip : {true, false}) {
      for (const UpdateOrder update : {UpdateOrder::Wait, UpdateOrder::Overlap}) {
        for (const uint32_t num_ranks : {1u, 3u}) {
          const TrainingCase run{.dtype = dtype,
                                 .clip = clip,
                                 .accumulation = 6,
                                 .memory = Memory::Smallest,
                                 .update = update,
                                 .order = MicroBatchOrder::Vertical,
                                 .between = Between::State,
                                 .evaluation_batches = num_ranks,
                                 .num_steps = 2,
                                 .num_ranks = num_ranks,
                                 .sums_on_devices = true,
                                 .groups = 3};
          const Gpt2 model(run.model, kMicroBatchSize, kLength, dtype);
          const Plan plan = prepare_case(model, run).plan;
          const uint32_t num = plan.count(&ChunkRecord::is_on_owner);
          EXPECT_GE(num, 2 * num_ranks);
          EXPECT_LT(num, plan.chunks.size());
          check.run(run);
        }
      }
    }
  }
}

/// One rank of each machine fetches a chunk for all.
TEST(Ranks, CopiesOfWeightsGiveTheBitsOfOne) {
  IdentityCheck check;
  for (const uint32_t num_ranks : {2u, 4u}) {
    check_few_schedules(check, {.accumulation = 4,
                                .evaluation_batches = 2,
                                .dropout = 0.2f,
                                .num_ranks = num_ranks,
                                .num_machines = 2,
                                .copies_weights = true});
  }
  check.run({.accumulation = 4,
             .memory = Memory::Smallest,
             .num_steps = 4,
             .num_ranks = 4,
             .num_machines = 2,
             .copies_weights = true,
             .delayed_updates = true});
  // Ranks per machine: 2; and 1, where copies pass from machine to machine.
  for (const uint32_t num_machines : {3u, 6u}) {
    check.run({.clip = num_machines == 3,
               .accumulation = 6,
               .memory = Memory::Smallest,
               .between = num_machines == 3 ? Between::Nothing : Between::Weights,
               .num_ranks = 6,
               .num_machines = num_machines,
               .copies_weights = true});
  }
}

/// Ranks per machine: 1, 2 and 1.
TEST(Ranks, SeveralMachinesGiveTheBitsOfOne) {
  IdentityCheck check;
  check_few_schedules(check, {.accumulation = 3,
                              .evaluation_batches = 2,
                              .dropout = 0.2f,
                              .num_ranks = 2,
                              .num_machines = 2});
  check_few_schedules(check, {.accumulation = 8, .num_ranks = 4, .num_machines = 2, .groups = 5});
  check.run({.clip = false,
             .accumulation = 4,
             .memory = Memory::Smallest,
             .between = Between::Weights,
             .evaluation_batches = 3,
             .num_ranks = 3,
             .num_machines = 3});
}

TEST(Ranks, OtherTypes) {
  IdentityCheck check;
  check_few_schedules(check, {.dtype = DType::F16, .accumulation = 2, .num_ranks = 2});
  check_few_schedules(check, {.dtype = DType::F32, .accumulation = 2, .num_ranks = 2});
}

/// With a limit just below the norm of the first step, its speculative updates are rolled back.
TEST(Ranks, Speculation) {
  IdentityCheck check;
  TrainingCase run{.accumulation = 2, .memory = Memory::Smallest, .num_ranks = 2, .max_norm = 1e9f};
  const double norm = train(run).outcome.norms[0];
  for (const double limit : {1e9, 0.98 * norm}) {
    run.max_norm = static_cast<float>(limit);
    run.update = UpdateOrder::Speculate;
    check.run(run);
    const Result result = train(run);
    EXPECT_GT(result.speculated[0], 0u);
    EXPECT_EQ(result.undone[0] > 0, limit < norm);
  }
}

std::string refusal_of(const TrainingCase& run) {
  try {
    train(run);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Ranks, TooFewGroupsAreRefused) {
  EXPECT_NE(refusal_of({.accumulation = 3, .num_ranks = 4})
                .find("3 micro-batches for 4 ranks: each rank computes at least one; try "
                      "`gradient_accumulation` 6"),
            std::string::npos);
  EXPECT_NE(
      refusal_of({.accumulation = 4, .num_ranks = 4, .groups = 2})
          .find("`groups` 2 for 4 ranks: each rank computes at least one group; try `groups` 4"),
      std::string::npos);
  EXPECT_NE(refusal_of({.accumulation = 4, .groups = 5}).find("`groups` 5: allowed is 1 to 4"),
            std::string::npos);
}

TEST(Ranks, SumsOnDevicesThatCannotBeReadAreRefused) {
  const char* const what = "the schedule asks for sums of groups on devices";
  EXPECT_NE(refusal_of({.accumulation = 2, .sums_on_devices = true}).find(what), std::string::npos);
  EXPECT_NE(
      refusal_of({.accumulation = 2, .num_ranks = 2, .num_machines = 2, .sums_on_devices = true})
          .find(what),
      std::string::npos);
}

/// Rank 1 throws before the second step, while rank 0 waits for it.
TEST(Ranks, AFailureEndsAllRanks) {
  const TrainingCase run{.accumulation = 2, .num_ranks = 2};
  ThreadRanks ranks(2, {.timeout_s = 30});
  const auto train_rank = [&](uint32_t rank) -> std::string {
    const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
    try {
      train(
          model, prepare_case(model, run, rank), run,
          [&](Trainer&, uint32_t step) {
            if (rank == 1 && step == 1) throw std::runtime_error("the data ended");
          },
          &ranks.rank(rank));
    } catch (const std::exception& error) {
      ranks.rank(rank).fail(error.what());
      return error.what();
    }
    return "";
  };
  std::string error;
  std::jthread other([&] { train_rank(1); });
  error = train_rank(0);
  other.join();
  EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
  EXPECT_NE(error.find("the data ended"), std::string::npos) << error;
}

/// Stays for some seconds in one of the calls of the first layer.
class StoppingModel : public ForwardingModel {
 public:
  StoppingModel(const Model& model, uint32_t stop_at) : ForwardingModel(model), left_(stop_at) {}
  Variable layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i,
                 Variable x) const override {
    if (i == 0 && left_-- == 0) std::this_thread::sleep_for(std::chrono::seconds(5));
    return model_.layer(tape, inputs, i, x);
  }

 private:
  mutable uint32_t left_;
};

/// The error of rank 0 if rank 1 stays in the call `stop_at` of the first layer. With recomputation
/// of two layers together, the first layer is called again before the backward of the second.
std::string error_if_stopped(uint32_t stop_at) {
  const TrainingCase run{
      .accumulation = 2, .recompute = recompute_together(2), .num_steps = 1, .num_ranks = 2};
  ThreadRanks ranks(2, {.timeout_s = 2});
  std::string errors[2];
  const auto train_rank = [&](uint32_t rank) {
    const Gpt2 gpt(run.model, kMicroBatchSize, run.length, run.dtype);
    const StoppingModel model(gpt, rank == 1 ? stop_at : UINT32_MAX);
    try {
      train(model, prepare_case(gpt, run, rank), run, {}, &ranks.rank(rank));
    } catch (const RankLost& error) {
      errors[rank] = error.what();
    }
  };
  std::jthread other([&] { train_rank(1); });
  train_rank(0);
  other.join();
  EXPECT_EQ(errors[0], errors[1]);
  return errors[0];
}

TEST(Ranks, ATimeLimitNamesTheLayer) {
  const std::string in_forward = error_if_stopped(0);
  EXPECT_TRUE(in_forward.starts_with("rank 1 has not finished the forward and the backward of "))
      << in_forward;
  const std::string in_backward = error_if_stopped(1);
  EXPECT_TRUE(in_backward.starts_with("rank 1 has not finished the backward of h.1"))
      << in_backward;
  EXPECT_TRUE(in_backward.ends_with(" for 2 s")) << in_backward;
}

}  // namespace
}  // namespace ebb::test
