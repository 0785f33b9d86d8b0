// A classifier whose logits have padding has the same bits for every budget, and nearly the numbers
// of one without padding. The device poisons its memory, so a result that depended on the padding
// would be NaN.
#include "tests/trainer/on_gpu.h"
#include "tests/trainer/test_sliced_head.h"

namespace ebb::test {
namespace {

class PaddedLogits : public OnGpu, public testing::WithParamInterface<std::tuple<DType, bool>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  /// The last slice has one class, so it has 63 columns of padding.
  SlicedHead model(int64_t column_multiple) const {
    ClassifierCut cut = kCut;
    cut.logits.column_multiple = column_multiple;
    return {dtype(), std::get<1>(GetParam()), cut};
  }
};
INSTANTIATE_TEST_SUITE_P(Heads, PaddedLogits,
                         testing::Combine(testing::Values(DType::F32, DType::BF16),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_tied" : "_alone");
                         });

TEST_P(PaddedLogits, HaveTheSameBitsForEveryBudgetAndNearlyThoseWithoutPadding) {
  TrainingCase requested{.dtype = dtype(),
                         .accumulation = 2,
                         .device = DeviceKind::Cuda,
                         .evaluation_batches = 1,
                         .num_steps = 2};
  const SlicedHead padded = model(64);
  const Outcome plain = run(model(1), requested).outcome;
  const Result expected = run(padded, requested);
  for (size_t step = 0; step < plain.losses.size(); ++step) {
    const double relative = dtype() == DType::F32 ? 1e-6 : 1e-4;
    const auto expect_near = [&](double got, double want) {
      EXPECT_NEAR(got, want, relative * want) << "step " << step;
    };
    expect_near(expected.outcome.losses[step], plain.losses[step]);
    expect_near(expected.outcome.norms[step], plain.norms[step]);
    expect_near(expected.outcome.evaluations[step], plain.evaluations[step]);
  }
  for (const Memory memory : {Memory::Smallest, Memory::Between}) {
    requested.memory = memory;
    SCOPED_TRACE(to_string(requested));
    const Result got = run(padded, requested);
    EXPECT_TRUE(got.outcome == expected.outcome) << to_string(got.outcome) << "\nexpected\n"
                                                 << to_string(expected.outcome);
    EXPECT_GT(got.loaded_bytes, expected.loaded_bytes);
  }
}

}  // namespace
}  // namespace ebb::test
