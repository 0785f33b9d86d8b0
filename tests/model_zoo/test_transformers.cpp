// The Llama family and BERT are near transformers in fp64: logits, and training in fp32 and in 16
// bits, also with the smallest memory budget. The comparison finds defects.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <ostream>
#include <string>

#include "autograd/primitives.h"
#include "tests/forwarding_model.h"
#include "tests/model_zoo/reference_run.h"

namespace ebb::test {

void PrintTo(const Deviation& d, std::ostream* os) {
  *os << "loss " << d.loss << ", norm " << d.norm << ", weights " << d.weight << ", their sums "
      << d.weight_sum;
}

namespace {

constexpr size_t kSmallChunk = 256 << 10;  // in fp32

// The fp32 runs of transformers deviate by up to 2e-7 (losses), 6e-7 (norms), 1.2e-4 (weights) and
// 1e-6 (logits).
bool losses_agree(const Deviation& d) { return d.loss < 1e-6; }
bool norms_agree(const Deviation& d) { return d.norm < 4e-6; }
bool weights_agree(const Deviation& d) { return d.weight < 2e-6 && d.weight_sum < 3e-7; }
bool logits_agree(double deviation) { return deviation < 2e-6; }

ReferenceRun load(const std::string& name) {
  return name == "mlm" ? load_reference(name, "bert") : load_reference(name, "llama");
}

const std::string kNames[] = {"llama2", "llama3", "linear", "yarn", "mistral",
                              "qwen2",  "qwen3",  "packed", "mlm"};

// ---- Logits -------------------------------------------------------------------------------------

/// A model that also copies its logits (B, T, V) for the test.
class ShowsLogits : public ForwardingModel {
 public:
  ShowsLogits(const Model& model, std::vector<float>& logits)
      : ForwardingModel(model), logits_(logits) {}
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    Variable y;
    if (const auto* llama = dynamic_cast<const Llama*>(&model_)) {
      y = linear(tape, llama->head_input(tape, x), llama->head_weight());
    } else {
      const auto& bert = dynamic_cast<const Bert&>(model_);
      y = linear(tape, bert.head_input(tape, x), bert.head_weight(), bert.head_bias());
    }
    logits_.resize(static_cast<size_t>(y.value.num_elements()));
    tape.stream().copy(logits_.data(), y.value.data, y.value.bytes(), CopyKind::Within);
    cross_entropy(tape, y, inputs[2]);
  }

 private:
  std::vector<float>& logits_;
};

/// The largest deviation, relative to the largest logit.
double logits_deviation(const ReferenceRun& reference) {
  std::vector<float> logits;
  const auto created = create_model(reference, DType::F32);
  const ShowsLogits model(*created, logits);
  TrainerOptions options{.dtype = DType::F32, .chunk_bytes = kSmallChunk, .evaluation_batches = 1};
  const Preparation prepared = prepare(model, options, {.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1}, .poison = true});
  Trainer trainer(model, *device, prepared);
  write_initial_values(trainer, model, reference.seed);
  const auto batches = micro_batches_of(reference, reference.steps[0]);
  trainer.evaluate(std::span(batches).first(1));
  double largest = 0;
  const ReferenceLogits& want = reference.logits;
  EXPECT_EQ(want.values.size(), (logits.size() + want.stride - 1) / want.stride);
  for (size_t i = 0; i < want.values.size(); ++i) {
    if (want.values[i] == 0) continue;  // padding
    const auto own = static_cast<double>(logits.at(i * want.stride));
    largest = std::fmax(largest, std::abs(own - want.values[i]) / want.max);
  }
  return largest;
}

class Transformers : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, Transformers, testing::ValuesIn(kNames),
                         [](const auto& info) { return info.param; });

TEST_P(Transformers, GiveTheSameLogits) {
  const double deviation = logits_deviation(load(GetParam()));
  EXPECT_TRUE(logits_agree(deviation)) << deviation;
  EXPECT_GT(deviation, 0);
}

// ---- Training -----------------------------------------------------------------------------------

TEST_P(Transformers, TrainTheSame) {
  const ReferenceRun reference = load(GetParam());
  const Deviation d = deviation(reference, run_reference(reference));
  EXPECT_TRUE(losses_agree(d)) << testing::PrintToString(d);
  EXPECT_TRUE(norms_agree(d)) << testing::PrintToString(d);
  EXPECT_TRUE(weights_agree(d)) << testing::PrintToString(d);
}

TEST_P(Transformers, LearningRatesEqualThoseOfTransformers) {
  const ReferenceRun reference = load(GetParam());
  for (size_t s = 0; s < reference.steps.size(); ++s) {
    EXPECT_DOUBLE_EQ(reference.learning_rate.at(s), reference.learning_rates[s]) << "step " << s;
  }
}

/// The deviations in 16 bits with fp32 masters, each divided by that of transformers. They are
/// random: roundings are different, and in fp16, which rounds little, single steps decide.
struct RelativeDeviation {
  double losses, norms;
};
RelativeDeviation half_precision_deviation(const ReferenceRun& reference, const RunResult& result,
                                           DType dtype) {
  const bool is_bf16 = dtype == DType::BF16;
  const auto ratio = [](const auto& ours, const auto& theirs, const auto& exact) {
    return rms_deviation(ours, exact) / rms_deviation(theirs, exact);
  };
  return {
      ratio(result.losses, is_bf16 ? reference.bf16_losses : reference.fp16_losses,
            reference.losses),
      ratio(result.norms, is_bf16 ? reference.bf16_norms : reference.fp16_norms, reference.norms)};
}

testing::AssertionResult within_transformers(const ReferenceRun& reference, const RunResult& result,
                                             DType dtype = DType::BF16) {
  const double most = dtype == DType::BF16 ? 1.5 : 1.6;
  const RelativeDeviation d = half_precision_deviation(reference, result, dtype);
  return testing::AssertionResult(d.losses < most && d.norms < most)
         << "losses " << d.losses << " times as far as transformers, norms " << d.norms;
}

TEST_P(Transformers, DeviateAsMuchInHalfPrecision) {
  const ReferenceRun reference = load(GetParam());
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const RunResult result = run_reference(reference, {.dtype = dtype});
    EXPECT_TRUE(within_transformers(reference, result, dtype)) << name_of(dtype);
  }
}

/// The geometric mean over all models finds what a single model does not.
TEST(TransformersRuns, DeviateInHalfPrecisionNoMoreOnAverage) {
  for (const DType dtype : {DType::BF16, DType::F16}) {
    double losses = 0, norms = 0;
    for (const std::string& name : kNames) {
      const ReferenceRun reference = load(name);
      const RelativeDeviation d =
          half_precision_deviation(reference, run_reference(reference, {.dtype = dtype}), dtype);
      losses += std::log(d.losses) / std::size(kNames);
      norms += std::log(d.norms) / std::size(kNames);
    }
    EXPECT_LT(std::exp(losses), 1.15) << name_of(dtype);
    EXPECT_LT(std::exp(norms), 1.15) << name_of(dtype);
  }
}

TEST_P(Transformers, SmallestBudgetGivesTheSameBits) {
  const ReferenceRun reference = load(GetParam());
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const RunResult resident = run_reference(reference, {.dtype = dtype});
    const RunResult tight = run_reference(reference, {.dtype = dtype,
                                                      .chunk_bytes = 65536 * size_of(dtype),
                                                      .recompute = kRecomputeEach,
                                                      .smallest_budget = true,
                                                      .num_threads = 2});
    EXPECT_EQ(tight.losses, resident.losses);
    EXPECT_EQ(tight.norms, resident.norms);
    EXPECT_EQ(tight.parameters, resident.parameters);
    EXPECT_EQ(tight.state_hash, resident.state_hash);
  }
}

TEST(TransformersRuns, SmallestBudgetMovesChunksInEveryStep) {
  for (const char* name : {"llama3", "qwen3", "mlm"}) {
    const ReferenceRun reference = load(name);
    const RunResult tight =
        run_reference(reference, {.chunk_bytes = kSmallChunk, .smallest_budget = true});
    EXPECT_GE(tight.num_weight_chunks, 3u) << name;
    const size_t passes = 2 * reference.steps.size() * reference.options.gradient_accumulation;
    EXPECT_GT(tight.loaded_bytes, passes * (tight.num_weight_chunks - 2) * kSmallChunk) << name;
  }
}

TEST(TransformersRuns, VerticalOrderAndOffloadingGiveTheSameBits) {
  for (const char* name : {"qwen3", "mlm"}) {
    const ReferenceRun reference = load(name);
    const RunResult plain = run_reference(reference);
    const auto vertical_and_offloaded = [](TrainerOptions& options) {
      options.schedule.micro_batch_order = MicroBatchOrder::Vertical;
      options.schedule.activations = ActivationPlacement::Offload;
    };
    const RunResult other = run_reference(
        reference, {.chunk_bytes = kSmallChunk, .change_options = vertical_and_offloaded});
    EXPECT_EQ(other.losses, plain.losses) << name;
    EXPECT_EQ(other.state_hash, plain.state_hash) << name;
  }
}

// ---- Defects that the comparison must find ------------------------------------------------------

struct Defect {
  const char* name;
  const char* of;
  void (*insert)(LlamaConfig&);
};
void PrintTo(const Defect& defect, std::ostream* os) { *os << defect.name << " of " << defect.of; }

const Defect kDefects[] = {
    {"theta", "llama2", [](LlamaConfig& c) { c.rotary.theta = 10100; }},
    {"no_scaling", "llama3", [](LlamaConfig& c) { c.rotary.scaling = RotaryScaling::None; }},
    {"another_low_frequency", "llama3", [](LlamaConfig& c) { c.rotary.low_freq_factor = 1.2; }},
    {"another_factor", "linear", [](LlamaConfig& c) { c.rotary.factor = 3.1; }},
    {"no_attention_factor", "yarn", [](LlamaConfig& c) { c.rotary.attention_factor = 1; }},
    {"beta_slow", "yarn", [](LlamaConfig& c) { c.rotary.beta_slow = 2; }},
    {"window_of_one_more", "mistral", [](LlamaConfig& c) { ++*c.sliding_window; }},
    {"no_window", "mistral", [](LlamaConfig& c) { c.sliding_window.reset(); }},
    {"epsilon", "qwen3", [](LlamaConfig& c) { c.norm_epsilon = 1e-4f; }},
};

class TransformersDefect : public testing::TestWithParam<Defect> {};
INSTANTIATE_TEST_SUITE_P(Llama, TransformersDefect, testing::ValuesIn(kDefects),
                         [](const auto& info) { return info.param.name; });

TEST_P(TransformersDefect, IsFound) {
  ReferenceRun reference = load(GetParam().of);
  GetParam().insert(std::get<LlamaConfig>(reference.config));
  EXPECT_FALSE(logits_agree(logits_deviation(reference)));
  EXPECT_FALSE(losses_agree(deviation(reference, run_reference(reference))));
}

Deviation with_inputs(const std::string& name, const std::function<void(ReferenceMicroBatch&)>& f) {
  ReferenceRun reference = load(name);
  for (auto& step : reference.steps) {
    for (ReferenceMicroBatch& batch : step) f(batch);
  }
  return deviation(reference, run_reference(reference));
}

TEST(TransformersDefect, AMissingDocumentMaskIsFound) {
  EXPECT_FALSE(losses_agree(with_inputs("packed", [](ReferenceMicroBatch& b) {
    std::fill(b.document_starts.begin(), b.document_starts.end(), 0);
  })));
}

TEST(TransformersDefect, PositionsThatDoNotRestartMakeNoDifferenceToRotaryAttention) {
  // Rotary attention depends only on differences of positions within a document.
  EXPECT_TRUE(losses_agree(with_inputs("packed", [](ReferenceMicroBatch& b) {
    for (size_t i = 0; i < b.positions.size(); ++i) {
      b.positions[i] = static_cast<int32_t>(i % 13);
    }
  })));
}

TEST(TransformersDefect, ConstantPositionsAreFound) {
  EXPECT_FALSE(losses_agree(with_inputs("packed", [](ReferenceMicroBatch& b) {
    std::fill(b.positions.begin(), b.positions.end(), 0);
  })));
}

TEST(TransformersDefect, PaddingThatIsNotMaskedIsFound) {
  EXPECT_FALSE(losses_agree(with_inputs("mlm", [](ReferenceMicroBatch& b) {
    std::fill(b.document_starts.begin(), b.document_starts.end(), 0);
  })));
}

TEST(TransformersDefect, AMissingTokenTypeIsFound) {
  EXPECT_FALSE(losses_agree(with_inputs("mlm", [](ReferenceMicroBatch& b) {
    std::fill(b.token_types.begin(), b.token_types.end(), 0);
  })));
}

TEST(TransformersDefect, AMissingLowHalfOfTheMastersIsFound) {
  const ReferenceRun reference = load("qwen3");
  const RunResult rounded = run_reference(
      reference,
      {.dtype = DType::BF16, .before_step = [](Trainer& trainer, const Model& model, double) {
         for (const Parameter& p : model.parameters()) {
           std::vector<float> masters = trainer.read_parameter(p.name);
           for (float& x : masters) x = BF16(x);
           trainer.write_parameter(p.name, masters);
         }
       }});
  EXPECT_FALSE(within_transformers(reference, rounded));
}

}  // namespace
}  // namespace ebb::test
