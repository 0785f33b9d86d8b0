// Training on an emulated GPU that has a library for attention: it is asked by default, and bits
// depend on nothing new.
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/trainer/identity.h"
#include "tests/trainer/on_gpu.h"

namespace ebb::test {
namespace {

class LibraryAttention : public OnGpu {
 protected:
  LibraryAttention() { emulation::settings().attention_library = "plain loops"; }
  ~LibraryAttention() override { emulation::settings().attention_library.clear(); }
};

TEST_F(LibraryAttention, HasTheSameBitsForEveryBudgetAndOrder) {
  IdentityCheck check;
  for (const TrainingCase& run :
       {TrainingCase{.memory = Memory::Smallest},
        {.memory = Memory::Between, .recompute = Recompute::Block},
        {.accumulation = 2, .memory = Memory::Smallest, .order = MicroBatchOrder::Vertical},
        {.accumulation = 2, .memory = Memory::Smallest, .update = UpdateOrder::Wait}}) {
    check.run(on_gpu(run));
  }
}

TEST_F(LibraryAttention, IsWhatAModelIsTrainedWith) {
  const TrainingCase run = on_gpu({.memory = Memory::Smallest});
  const Outcome library = train(run).outcome;
  emulation::settings().attention_library.clear();
  const Outcome ours = train(run).outcome;
  EXPECT_NE(library.hash, ours.hash);
  ASSERT_EQ(library.losses.size(), ours.losses.size());
  for (size_t i = 0; i < ours.losses.size(); ++i) {
    EXPECT_NEAR(library.losses[i], ours.losses[i], 1e-4 * ours.losses[i]) << "step " << i;
  }
}

}  // namespace
}  // namespace ebb::test
