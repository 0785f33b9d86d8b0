// Chunks and operations are named by their layers and parameters, and the bytes of a step are
// divided over the layers.
#include <gtest/gtest.h>

#include "tests/scheduler/timed_plans.h"
#include "tools/step_names.h"
#include "tools/traffic_report.h"

namespace ebb {
namespace {

TEST(StepNames, ALayerEndsWithTheFirstNumber) {
  EXPECT_EQ(layer_of("model.layers.3.self_attn.qkv.weight"), "model.layers.3");
  EXPECT_EQ(layer_of("h.11.ln_1.bias"), "h.11");
  EXPECT_EQ(layer_of("layers.0.weight"), "layers.0");
  EXPECT_EQ(layer_of("experts.2.blocks.5.weight"), "experts.2");
  EXPECT_EQ(layer_of("wte.weight"), "wte");
  EXPECT_EQ(layer_of("conv2d.in.weight"), "conv2d.in");
  EXPECT_EQ(layer_of("7"), "7");
  EXPECT_EQ(layer_of("scale"), "scale");
  EXPECT_EQ(layer_of(".weight"), ".weight");
  EXPECT_EQ(layer_of(""), "");
}

/// A chunk has 65,536 bf16 elements. The first parameter is tied, so its sums are in two places.
Layout layout_of_three() {
  return Layout({{.name = "wte.weight", .shape = {40000}, .num_uses = 2},
                 {.name = "h.0.fc.weight", .shape = {50000}},
                 {.name = "h.1.fc.weight", .shape = {40000}}},
                {0, 1, 2}, DType::BF16, DType::BF16, 131072);
}

TEST(StepNames, ChunksNameTheirFirstAndLastParameter) {
  const Layout layout = layout_of_three();
  const Plan plan;
  const Trace trace;
  const StepNames names(plan, trace, layout);
  EXPECT_EQ(names.parameters_of({Space::Weights, 0}), "wte.weight to h.0.fc.weight");
  EXPECT_EQ(names.layers_of({Space::Weights, 0}), "wte to h.0");
  EXPECT_EQ(names.layers_of({Space::Weights, 1}), "h.0 to h.1");
  EXPECT_EQ(names.layers_of({Space::Gradients, 1}), "h.0 to h.1");
  EXPECT_EQ(names.layers_of({Space::Activations, 0}), "");
  // 32,768 sums in a chunk. The sums of the second use follow the parameters.
  EXPECT_EQ(names.parameters_of({Space::GradientSums, 0}), "wte.weight");
  EXPECT_EQ(names.parameters_of({Space::GradientSums, layout.num_chunks(Space::GradientSums) - 1}),
            "wte.weight");
  const auto parts = names.parts({Space::Weights, 0});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].bytes, 2 * 40064u);  // with the padding to 256 bytes
  EXPECT_EQ(parts[1].bytes, 131072 - 2 * 40064u);
}

TEST(StepNames, ThePartsOfAChunkAreItsUsedBytes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const test::Case c = test::make_any_case(seed);
    const Plan plan;
    const StepNames names(plan, c.trace, c.layout);
    for (const Space space : {Space::Weights, Space::GradientSums, Space::Gradients}) {
      for (uint32_t i = 0; i < c.layout.num_chunks(space); ++i) {
        uint64_t sum = 0;
        for (const ParameterPart& part : names.parts({space, i})) sum += part.bytes;
        EXPECT_EQ(sum, c.layout.used_bytes({space, i})) << seed << ' ' << name_of(space) << i;
      }
    }
  }
}

TEST(StepNames, TheBytesOfTheLayersAreThoseOfThePlan) {
  uint64_t activations = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const test::Case c = test::make_any_case(seed);
    const Plan plan = test::plan_of_any_case(c, seed);
    const Traffic traffic = traffic_of(plan, c.layout);
    MovedBytes sum, by_class[kNumTrafficClasses];
    for (const auto& layer : StepNames(plan, c.trace, c.layout).traffic_by_layer()) {
      EXPECT_NE(layer.layer, "") << seed;
      sum += layer.total();
      for (int i = 0; i < kNumTrafficClasses; ++i) by_class[i] += layer.by_class[i];
    }
    EXPECT_EQ(sum.loaded_bytes, plan.loaded_bytes) << seed;
    EXPECT_EQ(sum.stored_bytes, plan.stored_bytes) << seed;
    for (int i = 0; i < kNumTrafficClasses; ++i) {
      EXPECT_EQ(by_class[i].bytes(), traffic.of(static_cast<TrafficClass>(i)).bytes()) << seed;
    }
    activations += traffic.of(TrafficClass::Activations).bytes();
  }
  EXPECT_GT(activations, 0u);
}

TEST(StepNames, OperationsNameTheirLayers) {
  const test::Case c = test::make_case_from_text("r0 r1 w1 w0", 2, 65536, 2);
  const Plan plan = test::plan_case(c, 8, true).plan;
  const StepNames names(plan, c.trace, c.layout);
  bool loads = false, updates = false, calls = false;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const std::string name = names.op_name(i);
    loads |= name == "load weights 1 (p.1)";
    updates |= name == "update 1 (p.1)";
    calls |= name.ends_with("forward (p.1)");
  }
  EXPECT_TRUE(loads);
  EXPECT_TRUE(updates);
  EXPECT_TRUE(calls);
}

TEST(StepNames, ACallWithoutParametersIsInTheLayerOfTheCallBefore) {
  test::Case c = test::make_case_from_text("r0 r1 r2 r3", 4, 65536, 4);
  const Plan plan = make_plan(c.trace, c.layout, {.num_blocks = 8, .update = false});
  c.trace.calls[1].num_uses = 2;  // the first one counts
  c.trace.calls[2].num_uses = 0;
  const StepNames names(plan, c.trace, c.layout);
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind != OpKind::Call || op.call == 0u || op.call == 3u) continue;
    EXPECT_EQ(names.layer_of_op(i), "p.1") << op.call;
  }
}

/// The layer of the call whose activations are stored, and of the first one that needs them again.
TEST(StepNames, MovesOfActivationsAreInTheLayerOfTheirCall) {
  const test::Case c = test::make_case_from_text("r0 r1 r2", 3, 65536, 3);
  const ChunkId activations{Space::Activations, 7};
  Op store = test::kStore, load = test::kLoad, speculate = test::kUpdate;
  store.chunk = load.chunk = activations;
  speculate.kind = OpKind::Speculate;
  const auto call = [](uint32_t i) { return Op{.kind = OpKind::Call, .call = CallIndex(i)}; };
  const test::WrittenPlan w{{call(0), {0, 1}},      {store, {1, 2}, {0}},   {load, {2, 3}, {1}},
                            {call(1), {3, 4}, {2}}, {call(2), {4, 5}, {2}}, {store, {5, 6}},
                            {speculate, {5, 6}}};
  const StepNames names(w.plan, c.trace, c.layout);
  EXPECT_EQ(names.op_name(OpIndex(1)), "store activations 7 (p.0)");
  EXPECT_EQ(names.op_name(OpIndex(2)), "load activations 7 (p.1)");
  EXPECT_EQ(names.op_name(OpIndex(5)), "store activations 7");  // no call is known
  EXPECT_EQ(names.op_name(OpIndex(6)), "speculative update 0 (p.0)");

  const std::vector<StepNames::LayerTraffic> rows = names.traffic_by_layer();
  ASSERT_EQ(rows.size(), 4u);
  const uint64_t chunk = c.layout.chunk_bytes();
  const std::pair<std::string, uint64_t> expected[] = {
      {"p.0", chunk}, {"p.1", chunk}, {"p.2", 0}, {"other", chunk}};
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].layer, expected[i].first);
    EXPECT_EQ(rows[i].total().bytes(), expected[i].second) << rows[i].layer;
  }
}

TEST(StepNames, WithoutActivationsOfNoLayerThereIsNoOtherLayer) {
  const test::Case c = test::make_case_from_text("r0 r1", 2, 65536, 2);
  const Plan plan = make_plan(c.trace, c.layout, {.num_blocks = 8, .update = false});
  const auto rows = StepNames(plan, c.trace, c.layout).traffic_by_layer();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows.back().layer, "p.1");
}

TEST(TrafficReport, ItsTableHasEachReasonAndTheTotal) {
  const test::Case c = test::make_case_from_text("r0 w0", 1, 65536, 1);
  const Plan plan = test::plan_case(c, 8, true).plan;
  EXPECT_EQ(traffic_table(traffic_of(plan, c.layout)),
            "  traffic of a step              loads       loaded  stores       stored\n"
            "  weights, first use                 1      128 KiB       -            -\n"
            "  gradients, update                  -            -       1      128 KiB\n"
            "  total                              1      128 KiB       1      128 KiB\n");
}

}  // namespace
}  // namespace ebb
