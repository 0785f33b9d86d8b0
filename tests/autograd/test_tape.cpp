// The tape on the simulated device: its calls of the hooks, and the lifetimes of activations.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "autograd/primitives.h"
#include "device/errors.h"
#include "device/sim/sim_device.h"
#include "scheduler/search/trace_recorder.h"

namespace ebb {
namespace {

constexpr int64_t kBatch = 2, kLength = 8, kChannels = 64, kVocabulary = 100;

/// All layers run again.
const std::vector<LayerRecompute> kWhole(16, {.whole = true});

/// An embedding, three residual layers that share one weight and have one weight each, and a head
/// that is tied to the embedding.
struct TinyModel {
  TinyModel() {
    wte = parameters.add("wte", {kVocabulary, kChannels}, Init::zeros());
    wpe = parameters.add("wpe", {kLength, kChannels}, Init::zeros());
    shared = parameters.add("shared", {kChannels, kChannels}, Init::zeros());
    for (ParameterId& p : own) p = parameters.add("own", {kChannels, kChannels}, Init::zeros());
  }

  void forward(Tape& tape, Tensor ids) const {
    Variable x = embedding(tape, ids, ids, wte, wpe, kChannels, DType::BF16);
    for (ParameterId p : own) {
      x = tape.layer(
          [this, p](Tape& t, Variable v) {
            const Variable a = activation(t, linear(t, v, shared), Activation::GeluTanh);
            return add(t, v, linear(t, a, p));
          },
          x);
    }
    classifier_cross_entropy(tape, x, wte, kVocabulary, ids);
  }

  Parameters parameters;
  ParameterId wte, wpe, shared;
  std::array<ParameterId, 3> own;
};

struct Recorded {
  Trace trace;
  std::vector<ParameterId> order;
  std::vector<uint32_t> num_uses;
  size_t live_bytes_after = 0;

  double flops() const {
    double sum = 0;
    for (const Call& m : trace.calls) sum += m.cost.flops;
    return sum;
  }
  /// "parameter.use" of each gradient, in order.
  std::string contributions() const {
    std::string text;
    for (const ParameterUse& use : trace.uses) {
      if (use.gradient) text += fmt::format("{}.{} ", use.parameter, use.use);
    }
    return text;
  }
};

/// Rotates a value in place.
Variable rotated(Tape& t, Variable x) {
  static const std::vector<double> frequencies(kChannels / 4, 0.5);
  const Tensor positions{
      reinterpret_cast<std::byte*>(uintptr_t{64}), DType::I32, {kBatch * kLength}};
  const Variable table = rotary_table(t, positions, frequencies, 1);
  return rotary(t, x, table.value, 2);
}

class TapeTest : public testing::Test {
 protected:
  using Body = std::function<void(Tape&, Tensor ids)>;

  Recorded record(const TapeOptions& options, uint32_t num_micro_batches = 1) {
    return record(options, num_micro_batches,
                  [&](Tape& tape, Tensor ids) { model_.forward(tape, ids); });
  }
  Recorded record(const TapeOptions& options, uint32_t num_micro_batches, const Body& body) {
    SimDevice sim;
    const auto compute = sim.create_stream(StreamKind::Compute);
    TraceRecorder recorder(sim, model_.parameters, DType::BF16);
    std::byte* const base = recorder.arena().base();
    Tape tape(sim, *compute, recorder, recorder.arena());
    for (uint32_t k = 0; k < num_micro_batches; ++k) {
      recorder.begin_micro_batch(k);
      tape.begin_micro_batch(options, {base, DType::F64, {1}}, 1);
      body(tape, {base, DType::I32, {kBatch, kLength}});
      tape.begin_backward();
      tape.backward_of_part();
      tape.end_micro_batch();
    }
    Recorded result{.trace = {},
                    .order = recorder.first_use_order(),
                    .num_uses = recorder.num_uses(),
                    .live_bytes_after = recorder.arena().live_bytes()};
    result.trace = recorder.take();
    return result;
  }

  const TinyModel model_;
};

std::string names(const Trace& trace) {
  std::string text;
  for (const Call& m : trace.calls) {
    text += m.phase == Phase::Backward ? "b:" : m.phase == Phase::Evaluate ? "e:" : "";
    text += std::string(m.name) + ' ';
  }
  return text;
}

TEST_F(TapeTest, BackwardIsForwardReversed) {
  const Recorded r = record({});
  EXPECT_EQ(names(r.trace),
            "embedding linear activation linear add linear activation linear add "
            "linear activation linear add classifier "
            "b:add b:linear b:activation b:linear b:add b:linear b:activation b:linear "
            "b:add b:linear b:activation b:linear b:embedding ");
}

TEST_F(TapeTest, RecomputedLayersRunAgainBeforeTheirBackward) {
  const Recorded r = record({.layers = kWhole});
  const std::string layer =
      "b:linear b:activation b:linear b:add b:add b:linear b:activation b:linear ";
  EXPECT_EQ(names(r.trace),
            "embedding linear activation linear add linear activation linear add "
            "linear activation linear add classifier " +
                layer + layer + layer + "b:embedding ");
}

TEST_F(TapeTest, SomeLayersMayBeRecomputed) {
  const std::string kept = "b:add b:linear b:activation b:linear ";
  const std::string again = "b:linear b:activation b:linear b:add " + kept;
  const auto backward_of = [&](const TapeOptions& options) {
    const std::string all = names(record(options).trace);
    return all.substr(all.find("classifier ") + 11);
  };
  const LayerRecompute whole{.whole = true}, none;
  const std::vector<LayerRecompute> first = {whole}, two = {whole, whole},
                                    other = {whole, none, whole};
  EXPECT_EQ(backward_of({.layers = first}), kept + kept + again + "b:embedding ");
  EXPECT_EQ(backward_of({.layers = two, .mark_idle = true}), kept + again + again + "b:embedding ");
  EXPECT_EQ(backward_of({.layers = other}), again + kept + again + "b:embedding ");
}

TEST_F(TapeTest, LayersWithinARecomputedLayerAreRecomputed) {
  const Body nested = [&](Tape& tape, Tensor ids) {
    Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe, kChannels, DType::BF16);
    for (int i = 0; i < 2; ++i) {
      x = tape.layer(
          [this](Tape& t, Variable v) {
            return add(
                t, v,
                t.layer([this](Tape& u, Variable w) { return linear(u, w, model_.shared); }, v));
          },
          x);
    }
    classifier_cross_entropy(tape, x, model_.wte, kVocabulary, ids);
  };
  const std::string kept = "b:add b:linear ", again = "b:linear b:add b:add b:linear b:linear ";
  EXPECT_EQ(names(record({.layers = std::span(kWhole).first(1)}, 1, nested).trace),
            "embedding linear add linear add classifier " + kept + again + "b:embedding ");
}

TEST_F(TapeTest, AGroupOfLayersRunsForwardAndThenBackward) {
  const std::string forward = "b:linear b:activation b:linear b:add ";
  const std::string backward = "b:add b:linear b:activation b:linear ";
  const auto backward_of = [&](uint32_t layers_at_once) {
    const std::string all =
        names(record({.layers = kWhole, .layers_at_once = layers_at_once}).trace);
    return all.substr(all.find("classifier ") + 11);
  };
  // The first two layers are a group; the third layer is another group.
  EXPECT_EQ(backward_of(2),
            forward + backward + forward + forward + backward + backward + "b:embedding ");
  const std::string three = forward + forward + forward + backward + backward + backward;
  EXPECT_EQ(backward_of(3), three + "b:embedding ");
  EXPECT_EQ(backward_of(1000), three + "b:embedding ");
}

TEST_F(TapeTest, EvaluationHasNoBackward) {
  const Recorded r = record({.training = false});
  EXPECT_EQ(names(r.trace),
            "e:embedding e:linear e:activation e:linear e:add e:linear e:activation e:linear e:add "
            "e:linear e:activation e:linear e:add e:classifier ");
  EXPECT_EQ(r.contributions(), "");
}

TEST_F(TapeTest, EachUseOfAWeightHasItsOwnSum) {
  const Recorded r = record({});
  // The head computes its gradient with the loss. Then follow the layers, last first, and the
  // embedding.
  EXPECT_EQ(r.contributions(), "0.1 5.0 2.2 4.0 2.1 3.0 2.0 0.0 1.0 ");
  EXPECT_EQ(r.num_uses, (std::vector<uint32_t>{2, 1, 3, 1, 1, 1}));
  EXPECT_EQ(r.order, (std::vector<ParameterId>{0, 1, 2, 3, 4, 5}));
}

TEST_F(TapeTest, RecomputationChangesNoGradient) {
  for (uint32_t k : {1u, 2u, 3u}) {
    const Recorded plain = record({}, k), again = record({.layers = kWhole}, k);
    EXPECT_EQ(plain.contributions(), again.contributions());
    EXPECT_EQ(plain.num_uses, again.num_uses);
    EXPECT_EQ(plain.order, again.order);
    EXPECT_GT(again.flops(), plain.flops());
    const Recorded together = record({.layers = kWhole, .layers_at_once = 2}, k);
    EXPECT_EQ(together.contributions(), plain.contributions());
    EXPECT_EQ(together.flops(), again.flops());
  }
}

TEST_F(TapeTest, RecomputationReadsTheSameUses) {
  const Recorded r = record({.layers = kWhole});
  std::string reads;
  for (const Call& m : r.trace.calls) {
    if (m.phase != Phase::Backward) continue;
    for (const ParameterUse& use : r.trace.uses_of(m)) {
      reads += fmt::format("{}{}.{} ", use.gradient ? "g" : "", use.parameter, use.use);
    }
  }
  EXPECT_EQ(reads,
            "2.2 5.0 g5.0 g2.2 "
            "2.1 4.0 g4.0 g2.1 "
            "2.0 3.0 g3.0 g2.0 g0.0 g1.0 ");
}

TEST_F(TapeTest, BackwardDeclaresWhetherItReadsTheWeight) {
  const Recorded r = record({});
  for (const Call& m : r.trace.calls) {
    if (m.phase != Phase::Backward) continue;
    for (const ParameterUse& use : r.trace.uses_of(m)) EXPECT_EQ(use.weight, m.name == "linear");
  }
}

TEST_F(TapeTest, AllActivationsAreReleasedInTheStep) {
  for (const TapeOptions& options :
       {TapeOptions{}, TapeOptions{.layers = kWhole},
        TapeOptions{.layers = kWhole, .layers_at_once = 2}, TapeOptions{.mark_idle = true},
        TapeOptions{.layers = kWhole, .layers_at_once = 2, .mark_idle = true},
        TapeOptions{.training = false}}) {
    const Recorded r = record(options, 2);
    EXPECT_EQ(r.live_bytes_after, 0u);
    size_t peak = 0;
    for (const ActivationSpan& span : r.trace.activations) {
      EXPECT_LE(span.first_call, span.last_call);
      EXPECT_LT(span.last_call, r.trace.calls.size());
      peak = std::max(peak, span.offset + span.bytes);
    }
    EXPECT_EQ(peak, r.trace.arena_bytes);
  }
}

TEST_F(TapeTest, ActivationsNeverOverlap) {
  const Recorded r = record({.layers = kWhole});
  const auto& spans = r.trace.activations;
  for (size_t a = 0; a < spans.size(); ++a) {
    for (size_t b = a + 1; b < spans.size(); ++b) {
      const bool apart = spans[a].offset + spans[a].bytes <= spans[b].offset ||
                         spans[b].offset + spans[b].bytes <= spans[a].offset;
      // Within one call one activation may follow the other, because a stream runs in order.
      const bool follow =
          spans[a].last_call <= spans[b].first_call || spans[b].last_call <= spans[a].first_call;
      EXPECT_TRUE(apart || follow) << a << " and " << b;
    }
  }
}

TEST_F(TapeTest, RecomputationAndEvaluationTakeLessMemory) {
  const size_t keep = record({}).trace.arena_bytes;
  const size_t recompute = record({.layers = kWhole}).trace.arena_bytes;
  const size_t evaluation = record({.training = false}).trace.arena_bytes;
  const size_t some = record({.layers = std::span(kWhole).first(2)}).trace.arena_bytes;
  EXPECT_LT(recompute, some);
  EXPECT_LT(some, keep);
  EXPECT_LE(evaluation, recompute);
}

/// An evaluation keeps only the input and the output of the current layer.
TEST_F(TapeTest, AnEvaluationOfMoreLayersTakesNoMoreMemory) {
  const auto with_layers = [&](bool training, int num_layers) {
    return record({.training = training}, 2, [&](Tape& tape, Tensor ids) {
      Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe, kChannels, DType::BF16);
      for (int i = 0; i < num_layers; ++i) {
        tape.next_layer(
            [this](Tape& t, Variable v) { return add(t, v, linear(t, v, model_.shared)); }, x);
      }
      classifier_cross_entropy(tape, x, model_.wte, kVocabulary, ids);
    });
  };
  EXPECT_EQ(with_layers(false, 10).trace.arena_bytes, with_layers(false, 2).trace.arena_bytes);
  EXPECT_GT(with_layers(true, 10).trace.arena_bytes, with_layers(true, 2).trace.arena_bytes);
  EXPECT_EQ(with_layers(false, 10).live_bytes_after, 0u);
}

/// The intervals are numbers of calls. A layer has four calls.
TEST_F(TapeTest, ActivationsAreIdleBetweenForwardAndBackwardOfTheirLayer) {
  const Trace trace = record({.mark_idle = true}).trace;
  std::string idle_intervals;
  for (const IdleInterval& r : trace.idle_intervals) {
    const ActivationSpan& span = trace.activations[r.span];
    EXPECT_LE(span.first_call, r.last_before);
    EXPECT_LT(r.last_before + 1, r.first_after);
    EXPECT_LE(r.first_after, span.last_call);
    idle_intervals += fmt::format("{}:{}-{} ", span.first_call, r.last_before, r.first_after);
  }
  // The backward begins at call 14 with the third layer; the second begins at 18, the first at 22.
  // The result of a layer is idle after the next layer, or the head, has used it.
  EXPECT_EQ(idle_intervals,
            "0:4-22 1:4-22 2:4-22 3:4-22 4:8-18 5:8-18 6:8-18 7:8-18 "
            "8:12-14 9:12-14 10:12-14 11:12-14 ");
}

TEST_F(TapeTest, OnlyKeptActivationsAreIdle) {
  const Trace trace = record({.layers = kWhole, .mark_idle = true}).trace;
  std::string idle_intervals;
  for (const IdleInterval& r : trace.idle_intervals) {
    idle_intervals += fmt::format("{}:{}-{} ", trace.activations[r.span].first_call, r.last_before,
                                  r.first_after);
  }
  EXPECT_EQ(idle_intervals, "0:4-30 4:8-22 8:12-14 ");
}

TEST_F(TapeTest, AValueUsedAcrossLayersIsRejectedWithGroupsOrIdleMarks) {
  const Body across = [&](Tape& tape, Tensor ids) {
    const auto body = [this](Tape& t, Variable v) { return linear(t, v, model_.shared); };
    const Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe, kChannels, DType::BF16);
    const Variable first = tape.layer(body, x);
    const Variable second = tape.layer(body, first);
    classifier_cross_entropy(tape, add(tape, first, second), model_.wte, kVocabulary, ids);
  };
  EXPECT_NO_THROW(record({}, 1, across));
  EXPECT_NO_THROW(record({.layers = kWhole}, 1, across));
  EXPECT_THROW(record({.mark_idle = true}, 1, across), ConfigError);
  EXPECT_THROW(record({.layers = kWhole, .layers_at_once = 2}, 1, across), ConfigError);
}

/// A loss between two layers has already written a gradient, so it must stay.
TEST_F(TapeTest, ALossBetweenLayersEndsAGroup) {
  const Body between = [&](Tape& tape, Tensor ids) {
    const auto body = [this](Tape& t, Variable v) { return linear(t, v, model_.shared); };
    Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe, kChannels, DType::BF16);
    x = tape.layer(body, x);
    classifier_cross_entropy(tape, x, model_.wte, kVocabulary, ids);
    x = tape.layer(body, x);
    classifier_cross_entropy(tape, x, model_.wte, kVocabulary, ids);
  };
  EXPECT_EQ(record({.layers = kWhole, .layers_at_once = 2}, 1, between).contributions(),
            record({}, 1, between).contributions());
}

/// The stages of a loss run before the next layer. Inside of it, a recomputed layer would record no
/// backward of them, and would count their uses as its own.
TEST_F(TapeTest, StagesOfALossRunBeforeTheNextLayer) {
  const Body between = [&](Tape& tape, Tensor ids) {
    const ClassifierCut slices{.weight_elements = kVocabulary / 2 * kChannels};
    Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe, kChannels, DType::BF16);
    for (const ParameterId p : {model_.own[0], model_.own[1]}) {
      x = tape.layer([p](Tape& t, Variable v) { return linear(t, v, p); }, x);
      classifier_cross_entropy(tape, x, model_.shared, kChannels, ids);
      classifier_cross_entropy(tape, x, model_.wte, kVocabulary, ids, slices);
    }
  };
  const Recorded kept = record({}, 1, between), again = record({.layers = kWhole}, 1, between);
  EXPECT_EQ(again.contributions(), kept.contributions());
  EXPECT_EQ(again.num_uses, kept.num_uses);
  EXPECT_EQ(names(kept.trace)
                .find("linear classifier classifier logits classifier logits "
                      "b:classifier gradient b:classifier gradient linear "),
            sizeof("embedding"));
  EXPECT_EQ(names(again.trace).substr(0, 200), names(kept.trace).substr(0, 200));
}

TEST_F(TapeTest, AStageMayNotLeaveStages) {
  const auto nested = [&](Tape& tape, Tensor ids) {
    const Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe, kChannels, DType::BF16);
    tape.run_in_stages(2, [&tape](uint32_t) { tape.run_in_stages(3, [](uint32_t) {}); });
    classifier_cross_entropy(tape, x, model_.wte, kVocabulary, ids);
  };
  EXPECT_THROW(record({}, 1, nested), LogicError);
}

TEST_F(TapeTest, AllMicroBatchesHaveTheSameCalls) {
  const Recorded one = record({}), two = record({}, 2);
  ASSERT_EQ(two.trace.calls.size(), 2 * one.trace.calls.size());
  EXPECT_EQ(two.trace.arena_bytes, one.trace.arena_bytes);
  for (size_t i = 0; i < one.trace.calls.size(); ++i) {
    const Call& a = two.trace.calls[i];
    const Call& b = two.trace.calls[one.trace.calls.size() + i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.cost.flops, b.cost.flops);
    EXPECT_EQ(a.micro_batch, 0u);
    EXPECT_EQ(b.micro_batch, 1u);
  }
}

TEST_F(TapeTest, CountsTheFlopsOfALinearCall) {
  const Recorded r = record({});
  const double product = 2.0 * kBatch * kLength * kChannels * kChannels;
  EXPECT_EQ(r.trace.calls[1].cost.flops, product);
  EXPECT_EQ(r.trace.calls[15].name, "linear");
  EXPECT_EQ(r.trace.calls[15].cost.flops, 2 * product);
}

TEST_F(TapeTest, WorkInPlacePassesTheGradientOn) {
  for (const TapeOptions& options :
       {TapeOptions{}, TapeOptions{.layers = kWhole}, TapeOptions{.mark_idle = true}}) {
    const Recorded r = record(options, 2, [&](Tape& tape, Tensor ids) {
      Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe, kChannels, DType::BF16);
      const auto body = [this](Tape& t, Variable v) {
        return linear(t, rotated(t, linear(t, v, model_.shared)), model_.own[0]);
      };
      x = tape.layer(body, x);
      classifier_cross_entropy(tape, x, model_.wte, kVocabulary, ids);
    });
    const std::string again = "b:linear b:rotary_table b:rotary b:linear ";
    const std::string one = "embedding linear rotary_table rotary linear classifier " +
                            (!options.layers.empty() ? again : "") +
                            "b:linear b:rotary b:linear b:embedding ";
    EXPECT_EQ(names(r.trace), one + one);
    EXPECT_EQ(r.live_bytes_after, 0u);
  }
}

TEST_F(TapeTest, AnInputIsNotChangedInPlaceAndAValueOnlyOnce) {
  EXPECT_THROW(record({}, 1,
                      [](Tape& tape, Tensor) {  // an input
                        rotated(tape, {.value = {reinterpret_cast<std::byte*>(uintptr_t{64}),
                                                 DType::BF16,
                                                 {kBatch, kLength, kChannels}}});
                      }),
               LogicError);
  EXPECT_THROW(record({}, 1,
                      [&](Tape& tape, Tensor ids) {  // twice
                        const Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe,
                                                     kChannels, DType::BF16);
                        rotated(tape, x);
                        rotated(tape, x);
                      }),
               LogicError);
}

TEST_F(TapeTest, CallsDoNotNest) {
  EXPECT_THROW(record({}, 1,
                      [](Tape& tape, Tensor) {
                        tape.begin_call("outer", {});
                        tape.begin_call("inner", {});
                      }),
               LogicError);
}

TEST_F(TapeTest, ALossIsNotRecomputed) {
  EXPECT_THROW(record({.layers = kWhole}, 1,
                      [&](Tape& tape, Tensor ids) {
                        const Variable x = embedding(tape, ids, ids, model_.wte, model_.wpe,
                                                     kChannels, DType::BF16);
                        const Variable y = tape.layer(
                            [this, ids](Tape& t, Variable v) {
                              const Variable logits = linear(t, v, model_.wte);
                              cross_entropy(t, logits, ids.reshape({kBatch * kLength}));
                              return logits;
                            },
                            x);
                        cross_entropy(tape, y, ids.reshape({kBatch * kLength}));
                      }),
               LogicError);
}

}  // namespace
}  // namespace ebb
