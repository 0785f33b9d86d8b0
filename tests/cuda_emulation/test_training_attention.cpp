// Training on an emulated GPU with a library for attention. The library is used by default, and the
// bits depend on nothing else than before.
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/error_of.h"
#include "tests/trainer/identity.h"
#include "tests/trainer/on_gpu.h"

namespace ebb::test {
namespace {

class LibraryAttention : public OnGpu {
 protected:
  LibraryAttention() { emulation::settings().attention_library = "plain loops"; }
  ~LibraryAttention() override { emulation::settings().attention_library.clear(); }
};

/// Rows of whole tiles, for which the library has a backward.
TrainingCase with_long_rows(TrainingCase run) {
  run = on_gpu(run);
  run.length = run.model.max_positions = 128;
  return run;
}

TEST_F(LibraryAttention, HasTheSameBitsForEveryBudgetAndOrder) {
  IdentityCheck short_rows, long_rows;
  for (const TrainingCase& run :
       {TrainingCase{.memory = Memory::Smallest},
        {.memory = Memory::Between, .recompute = kRecomputeEach},
        {.accumulation = 2, .memory = Memory::Smallest, .order = MicroBatchOrder::Vertical},
        {.accumulation = 2, .memory = Memory::Smallest, .update = UpdateOrder::Wait}}) {
    short_rows.run(on_gpu(run));
    long_rows.run(with_long_rows(run));
  }
}

void expect_near(const Outcome& library, const Outcome& ours) {
  EXPECT_NE(library.hash, ours.hash);
  ASSERT_EQ(library.losses.size(), ours.losses.size());
  for (size_t i = 0; i < ours.losses.size(); ++i) {
    EXPECT_NEAR(library.losses[i], ours.losses[i], 1e-4 * ours.losses[i]) << "step " << i;
  }
}

TEST_F(LibraryAttention, IsWhatAModelIsTrainedWith) {
  const TrainingCase run = on_gpu({.memory = Memory::Smallest});
  const TrainingCase long_run = with_long_rows(run);
  const Outcome library = train(run).outcome, long_library = train(long_run).outcome;
  emulation::settings().attention_library.clear();
  expect_near(library, train(run).outcome);
  expect_near(long_library, train(long_run).outcome);
}

/// A device whose attention needs more workspace than the plan has.
TEST_F(LibraryAttention, IsAskedOfThePlanToo) {
  TrainingCase run = on_gpu({});
  run.length = run.model.max_positions = 4096;  // 128 MiB of scores; products need 32 MiB
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  const auto plan_for = [&](std::optional<AttentionKernels> attention) {
    return prepare(
        model, run.options(),
        {.device = {.kind = DeviceKind::Cuda, .num_threads = 1, .attention = attention}});
  };
  const Preparation any = plan_for({}), ours = plan_for(AttentionKernels::Ebb);
  EXPECT_LT(ours.smallest_device_bytes, any.smallest_device_bytes);
  EXPECT_EQ(plan_for(AttentionKernels::Cudnn).smallest_device_bytes, any.smallest_device_bytes);
  const auto device = create_device({.profile = {.kind = DeviceKind::Cuda, .num_threads = 1}});
  Trainer(model, *device, any);
  const ConfigError error = error_of<ConfigError>([&] { Trainer(model, *device, ours); });
  EXPECT_SAYS(error, "Ebb's attention kernels");
  EXPECT_SAYS(error, "Budgets::device");
}

}  // namespace
}  // namespace ebb::test
