// An activation between two linear layers: the calls of the tape, and the memory that is saved
// because the gradient between the activation and the second layer is not stored.
#include <gtest/gtest.h>

#include <functional>

#include "autograd/primitives.h"
#include "device/sim/sim_device.h"
#include "scheduler/search/trace_recorder.h"

namespace ebb::tests_of_activated {
namespace {

constexpr int64_t kRows = 32, kChannels = 64, kInner = 1024, kVocabulary = 100;

class ActivatedTest : public testing::Test {
 protected:
  ActivatedTest() {
    table_ = parameters_.add("table", {kVocabulary, kChannels}, Init::zeros());
    up_ = parameters_.add("up", {kInner, kChannels}, Init::zeros());
    up_bias_ = parameters_.add("up_bias", {kInner}, Init::zeros());
    down_ = parameters_.add("down", {kChannels, kInner}, Init::zeros());
  }

  /// Records an embedding, the body, and a head that is tied to the embedding.
  Trace record(const std::function<Variable(Tape&, Variable)>& body) {
    SimDevice sim;
    const auto compute = sim.create_stream(StreamKind::Compute);
    TraceRecorder recorder(sim, parameters_, DType::BF16);
    std::byte* const base = recorder.arena().base();
    Tape tape(sim, *compute, recorder, recorder.arena());
    const Tensor ids{base, DType::I32, {1, kRows}};
    recorder.begin_micro_batch(0);
    tape.begin_micro_batch({}, {base, DType::F64, {1}}, 1);
    const Variable x = embedding(tape, ids, table_, kChannels, DType::BF16);
    classifier_cross_entropy(tape, body(tape, x), table_, kVocabulary, ids);
    tape.begin_backward();
    tape.backward_of_part();
    tape.end_micro_batch();
    EXPECT_EQ(recorder.arena().live_bytes(), 0u);
    return recorder.take();
  }
  Activated activated(Tape& t, Variable x) const {
    return linear_activation(t, x, up_, up_bias_, Activation::GeluTanh);
  }

  Parameters parameters_;
  ParameterId table_, up_, up_bias_, down_;
};

std::string names(const Trace& trace) {
  std::string text;
  for (const Call& m : trace.calls) {
    text += m.phase == Phase::Backward ? "b:" : "";
    text += std::string(m.name) + ' ';
  }
  return text;
}

TEST_F(ActivatedTest, TakesOneActivationLessThanSeparateCalls) {
  const Trace together =
      record([&](Tape& t, Variable x) { return activation_linear(t, activated(t, x), down_); });
  const Trace apart = record([&](Tape& t, Variable x) {
    return linear(t, activation(t, linear(t, x, up_, up_bias_), Activation::GeluTanh), down_);
  });
  EXPECT_EQ(names(together),
            "embedding linear activation linear classifier b:linear b:linear b:embedding ");
  double flops[2] = {};
  for (const Call& m : together.calls) flops[0] += m.cost.flops;
  for (const Call& m : apart.calls) flops[1] += m.cost.flops;
  EXPECT_EQ(flops[0], flops[1]);
  const size_t between = kRows * kInner * size_of(DType::BF16);
  EXPECT_EQ(apart.arena_bytes - together.arena_bytes, between);
}

TEST_F(ActivatedTest, MayBeUsedOnce) {
  EXPECT_THROW(record([&](Tape& t, Variable x) {
                 const Activated a = activated(t, x);
                 return add(t, activation_linear(t, a, down_), activation_linear(t, a, down_));
               }),
               LogicError);
}

}  // namespace
}  // namespace ebb::tests_of_activated
