// Which values of a layer are freed, and which calls run again. The layers are those of models, as
// a dry run sees them, and layers written by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/recompute.h"
#include "model_zoo/gpt2.h"
#include "model_zoo/llama.h"
#include "scheduler/search/prepare.h"

namespace ebb::tests_of_recompute {
namespace {

constexpr int64_t kBatch = 2, kLength = 16, kChannels = 64;
constexpr size_t kColumn = kBatch * kLength * kChannels * 2;  // bytes of (B, T, C) bf16

ObservedLayer layer_of_gpt(float dropout = 0) {
  const Gpt2 model({.vocabulary = 50,
                    .max_positions = kLength,
                    .channels = kChannels,
                    .num_layers = 3,
                    .num_heads = 2},
                   kBatch, kLength, DType::BF16);
  return observe_layers(model, {.dropout = dropout}, {.device = {.num_threads = 1}}).at(1);
}

ObservedLayer layer_of_qwen() {
  const Llama model({.vocabulary = 50,
                     .channels = kChannels,
                     .num_layers = 3,
                     .num_heads = 4,
                     .num_kv_heads = 4,
                     .head_dim = 16,
                     .mlp_channels = 2 * kChannels,
                     .max_positions = kLength,
                     .qk_norm = true},
                    kBatch, kLength, DType::BF16);
  return observe_layers(model, {}, {.device = {.num_threads = 1}}).at(1);
}

/// The names of the calls that run again.
std::string repeated(const ObservedLayer& layer, ValueGroups groups) {
  std::string names;
  for (const uint32_t call : layer_recompute(layer, groups).repeated_calls) {
    names += std::string(layer.calls[call].name) + ' ';
  }
  return names;
}

/// Kept values of a layer in multiples of (B, T, C) bf16, rounded. Its result is not counted,
/// because it is the input of the next layer.
int64_t kept_columns(const ObservedLayer& layer, ValueGroups groups) {
  size_t bytes = 0;
  for (const ObservedValue& value : layer.values) {
    if (value.replaced_by < 0) bytes += value.bytes;
  }
  for (const uint32_t freed : layer_recompute(layer, groups).freed_values) {
    bytes -= layer.values[freed].bytes;
  }
  bytes -= layer.values.back().bytes;
  return std::lround(static_cast<double>(bytes) / kColumn);
}

TEST(Recompute, CallsOfAGptLayer) {
  const ObservedLayer layer = layer_of_gpt();
  EXPECT_EQ(repeated(layer, kKeepAll), "");
  EXPECT_EQ(repeated(layer, kNorms), "layer_norm layer_norm ");
  EXPECT_EQ(repeated(layer, kActivations), "activation ");
  EXPECT_EQ(repeated(layer, kMlp), "linear ");
  EXPECT_EQ(repeated(layer, kAttention), "linear attention ");
  EXPECT_EQ(repeated(layer, kNormsLevel), "layer_norm layer_norm activation ");
  EXPECT_EQ(repeated(layer, kMlpLevel), "layer_norm layer_norm linear activation ");
  EXPECT_EQ(repeated(layer, kAttentionLevel),
            "layer_norm linear attention layer_norm linear activation ");
  // The sum of the residual stream needs the product after attention, but not the last product.
  EXPECT_EQ(repeated(layer, kWholeLayer),
            "layer_norm linear attention linear layer_norm linear activation ");
}

/// For each channel of a token: the outputs of the two norms 1 and 1, queries, keys and values 3,
/// attention 1, the sum 1, and the MLP 4 and 4. Products into the residual stream are not kept. The
/// statistics of norms and attention are small.
TEST(Recompute, MemoryOfAGptLayer) {
  for (const float dropout : {0.0f, 0.1f}) {
    const ObservedLayer layer = layer_of_gpt(dropout);
    EXPECT_EQ(kept_columns(layer, kKeepAll), 15);
    EXPECT_EQ(kept_columns(layer, kNormsLevel), 9);
    EXPECT_EQ(kept_columns(layer, kMlpLevel), 5);
    EXPECT_EQ(kept_columns(layer, kAttentionLevel), 1);
    EXPECT_EQ(kept_columns(layer, kWholeLayer), 0);
  }
}

/// The norm of queries and keys, and their rotation in its memory, are one group.
TEST(Recompute, WorkInPlaceRunsAgainWithTheCallThatMadeItsMemory) {
  const ObservedLayer layer = layer_of_qwen();
  EXPECT_EQ(repeated(layer, kNorms), "rms_norm head_norm rotary rms_norm ");
  EXPECT_EQ(repeated(layer, kMlp), "linear ");
  EXPECT_EQ(repeated(layer, kAttention), "linear attention ");
  EXPECT_EQ(repeated(layer, kAttentionLevel),
            "rms_norm linear head_norm rotary attention rms_norm linear swiglu ");
}

TEST(Recompute, GroupsFollowFromWhatTakesAProduct) {
  const ObservedLayer layer = layer_of_gpt();
  std::map<ValueGroups, int> num;
  const std::vector<ValueGroups> groups = groups_of(layer);
  for (size_t i = 0; i < groups.size(); ++i) num[groups[i]] += layer.calls[i].name == "linear";
  EXPECT_EQ(num[kAttention], 1);
  EXPECT_EQ(num[kMlp], 1);
  EXPECT_EQ(num[kOthers], 2);
}

/// A layer of calls with one output each. Call i reads the values in inputs[i].
ObservedLayer written(std::vector<std::pair<std::string_view, std::vector<uint32_t>>> calls) {
  ObservedLayer layer;
  for (uint32_t i = 0; i < calls.size(); ++i) {
    layer.calls.push_back(
        {.name = calls[i].first, .first_value = i, .num_values = 1, .inputs = calls[i].second});
    layer.values.push_back({.call = i, .bytes = 1, .read_in_backward = true});
  }
  layer.values.back().used_outside = true;
  return layer;
}

TEST(Recompute, AValueThatIsUsedOutsideIsKept) {
  ObservedLayer layer = written({{"activation", {}}, {"softmax", {0}}, {"add", {1}}});
  EXPECT_EQ(layer_recompute(layer, kWholeLayer).freed_values, (std::vector<uint32_t>{0, 1}));
  layer.values[0].used_outside = true;
  const LayerRecompute lists = layer_recompute(layer, kWholeLayer);
  EXPECT_EQ(lists.freed_values, std::vector<uint32_t>{1});
  EXPECT_EQ(lists.repeated_calls, std::vector<uint32_t>{1});
}

/// The second output of the first call is used outside, so the call cannot run again, and its first
/// output is kept, although the call that runs again is the only one that needs it.
TEST(Recompute, ACallOfWhichOneOutputIsKeptDoesNotRunAgain) {
  ObservedLayer layer;
  layer.calls = {{.name = "own", .first_value = 0, .num_values = 2},
                 {.name = "activation", .first_value = 2, .num_values = 1, .inputs = {0}},
                 {.name = "add", .first_value = 3, .num_values = 1, .inputs = {2}}};
  layer.values = {{.call = 0, .bytes = 1},
                  {.call = 0, .bytes = 1, .used_outside = true},
                  {.call = 1, .bytes = 1, .read_in_backward = true},
                  {.call = 2, .bytes = 1, .used_outside = true}};
  EXPECT_EQ(layer_recompute(layer, kKeepAll).freed_values, std::vector<uint32_t>{0});
  const LayerRecompute lists = layer_recompute(layer, kActivations);
  EXPECT_EQ(lists.freed_values, std::vector<uint32_t>{2});
  EXPECT_EQ(lists.repeated_calls, std::vector<uint32_t>{1});
}

/// Every call that runs again has its inputs, and every value that the backward reads is there.
TEST(Recompute, ListsOfRandomLayersAreComplete) {
  static constexpr std::string_view kNames[] = {"layer_norm", "activation", "linear",
                                                "attention",  "add",        "own"};
  uint32_t state = 1;
  const auto draw = [&state](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 16) % below;
  };
  int num_repeated = 0;
  for (int k = 0; k < 2000; ++k) {
    ObservedLayer layer;
    const uint32_t num_calls = 3 + draw(8);
    for (uint32_t c = 0; c < num_calls; ++c) {
      const auto first = static_cast<uint32_t>(layer.values.size());
      const bool in_place = c > 0 && draw(5) == 0 && !layer.values.back().used_outside;
      ObservedCall call{.name = kNames[draw(6)], .first_value = first, .num_values = 1 + draw(2)};
      for (uint32_t v = 0; v < first; ++v) {
        if (layer.values[v].replaced_by < 0 && draw(3) == 0) call.inputs.push_back(v);
      }
      if (in_place) {
        layer.values[first - 1].replaced_by = static_cast<int32_t>(first);
        layer.values[first - 1].read_in_backward = false;
        if (std::ranges::count(call.inputs, first - 1) == 0) call.inputs.push_back(first - 1);
      }
      for (uint32_t i = 0; i < call.num_values; ++i) {
        layer.values.push_back({.call = c,
                                .bytes = 1,
                                .read_in_backward = draw(2) == 0,
                                .used_outside = draw(8) == 0});
      }
      layer.calls.push_back(call);
    }
    layer.values.back().used_outside = true;
    const LayerRecompute lists =
        layer_recompute(layer, static_cast<ValueGroups>(draw(kWholeLayer + 1)));

    std::vector<bool> live(layer.values.size());
    for (size_t v = 0; v < live.size(); ++v) live[v] = layer.values[v].replaced_by < 0;
    for (const uint32_t v : lists.freed_values) {
      ASSERT_TRUE(live[v] && !layer.values[v].used_outside) << k;
      live[v] = false;
    }
    for (const uint32_t c : lists.repeated_calls) {
      const ObservedCall& call = layer.calls[c];
      for (const uint32_t input : call.inputs) ASSERT_TRUE(live[input]) << k;
      for (const uint32_t input : call.inputs) {
        if (layer.values[input].replaced_by == static_cast<int32_t>(call.first_value)) {
          live[input] = false;
        }
      }
      for (uint32_t i = 0; i < call.num_values; ++i) {
        ASSERT_FALSE(live[call.first_value + i]) << k;
        live[call.first_value + i] = true;
      }
      ++num_repeated;
    }
    for (size_t v = 0; v < live.size(); ++v) {
      if (layer.values[v].read_in_backward || layer.values[v].used_outside) {
        ASSERT_TRUE(live[v] || layer.values[v].replaced_by >= 0) << k << ' ' << v;
      }
    }
  }
  EXPECT_GT(num_repeated, 1000);
}

/// What exists when the backward begins, in the trace.
size_t live_bytes(const Trace& trace) {
  const auto backward = std::ranges::find(trace.calls, Phase::Backward, &Call::phase);
  const CallIndex first(static_cast<uint32_t>(backward - trace.calls.begin()));
  size_t bytes = 0;
  for (const ActivationSpan& span : trace.activations) {
    if (span.first_call < first && span.last_call >= first) bytes += span.bytes;
  }
  return bytes;
}

TEST(Recompute, LayersKeepWhatTheTraceKeeps) {
  const Gpt2 model(
      {.vocabulary = 50, .max_positions = 64, .channels = 128, .num_layers = 5, .num_heads = 2}, 2,
      64, DType::BF16);
  const auto prepared = [&](const Recompute& recompute) {
    return prepare(model, {.chunk_bytes = 1 << 20, .schedule = {.recompute = recompute}},
                   {.device = {.num_threads = 1}}, {.flops_per_s = 1e12});
  };
  const auto kept = [](const Preparation& p) {
    size_t bytes = 0;
    for (const LayerSummary& layer : p.layers) bytes += layer.kept_bytes;
    return bytes;
  };
  const Preparation all = prepared(kRecomputeNone);
  ASSERT_EQ(all.layers.size(), 5u);
  EXPECT_EQ(all.layers[1].recompute_s, 0);
  for (const Recompute& recompute :
       {Recompute{.groups = {kNormsLevel}}, Recompute{.groups = {kMlpLevel, kAttentionLevel}},
        kRecomputeEach, recompute_together(2)}) {
    const Preparation some = prepared(recompute);
    EXPECT_EQ(kept(all) - kept(some), live_bytes(all.trace) - live_bytes(some.trace))
        << name_of(recompute, 5);
    EXPECT_LT(kept(some), kept(all));
    double recompute_s = 0, flops = 0;
    for (const LayerSummary& layer : some.layers) recompute_s += layer.recompute_s;
    flops = some.flops - all.flops;
    EXPECT_NEAR(recompute_s * 1e12, flops, 1e-6 * flops) << name_of(recompute, 5);
  }
}

TEST(Recompute, NamesOfSets) {
  EXPECT_EQ(name_of_groups(kKeepAll), "none");
  EXPECT_EQ(name_of_groups(kMlpLevel), "mlp");
  EXPECT_EQ(name_of_groups(kWholeLayer), "layer");
  EXPECT_EQ(name_of_groups(kNorms + kMlp), "norm outputs + MLP products");
}

}  // namespace
}  // namespace ebb::tests_of_recompute
