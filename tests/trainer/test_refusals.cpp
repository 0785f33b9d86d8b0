// Invalid settings and inputs that a trainer refuses, before step 0 if possible.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "autograd/primitives.h"
#include "tests/error_of.h"
#include "tests/forwarding_model.h"
#include "tests/trainer/cases.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test::tests_of_refusals {
namespace {

constexpr double kLearningRate = 1e-3;

/// `said`: a text or an error.
template <class Said>
void expect_parts(const Said& said, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) EXPECT_SAYS(said, part);
}

class Refusals : public testing::Test {
 protected:
  Preparation plan(const Budgets& budgets) const { return prepare(model_, options_, budgets); }

  TrainingCase run_{.accumulation = 2, .evaluation_batches = 1};
  TrainerOptions options_ = run_.options();
  Gpt2 model_{tiny_gpt(), kMicroBatchSize, 8, DType::BF16};
};

TEST_F(Refusals, ADeviceBudgetOneByteTooSmallSaysWhatWorks) {
  const size_t smallest = plan({.device = {.num_threads = 1}}).smallest_device_bytes;
  const Budgets budgets{.device_memory = smallest - 1, .device = {.num_threads = 1}};
  const std::string text = error_of<PlanError>([&] { plan(budgets); }).what();
  expect_parts(text, {std::to_string(smallest), "weights", "gradient sums", "gradients",
                      "activations", "inputs", "workspace", "partial norms"});
  EXPECT_EQ(text.find("try "), std::string::npos)
      << "only one schedule was planned, so there is no advice\n"
      << text;
  EXPECT_FALSE(text.ends_with('\n'));
}

TEST_F(Refusals, TheSmallestDeviceBudgetWorks) {
  const size_t smallest = plan({.device = {.num_threads = 1}}).smallest_device_bytes;
  const Preparation prepared = plan({.device_memory = smallest, .device = {.num_threads = 1}});
  EXPECT_EQ(prepared.ledger.total(Tier::Device), smallest);
  const auto device = create_device({.profile = {.num_threads = 1}, .memory_bytes = smallest});
  Trainer trainer(model_, *device, prepared);
  const Data data(tiny_gpt(), 8, 2, 1);
  EXPECT_GT(trainer.step(data.micro_batches(), kLearningRate).loss, 0);
}

TEST_F(Refusals, ADeviceWithLessThanThePlanIsOutOfMemory) {
  const Preparation prepared = plan({.device = {.num_threads = 1}});
  const size_t total = prepared.ledger.total(Tier::Device);
  const auto device = create_device({.profile = {.num_threads = 1}, .memory_bytes = total - 1});
  EXPECT_THROW(Trainer(model_, *device, prepared), OutOfMemory);
}

TEST_F(Refusals, AHostBudgetOneByteTooSmallSaysWhatWorks) {
  const size_t needed = plan({.device = {.num_threads = 1}}).ledger.total(Tier::Host);
  const Budgets budgets{.host_memory = needed - 1, .device = {.num_threads = 1}};
  const std::string text = error_of<PlanError>([&] { plan(budgets); }).what();
  expect_parts(text, {std::to_string(needed), "weight", "momentum", "variance", "gradients"});
  EXPECT_EQ(text.find("try "), std::string::npos) << text;
  EXPECT_EQ(plan({.host_memory = needed, .device = {.num_threads = 1}}).ledger.total(Tier::Host),
            needed);
}

TEST_F(Refusals, ChunkSizesThatAreNoMultipleOfThePiece) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{131072 - 256}, size_t{131072 + 1}}) {
    options_.chunk_bytes = bytes;
    expect_parts(error_of<ConfigError>([&] { plan({}); }), {"chunk size", "128 KiB"});
  }
}

TEST_F(Refusals, GradientsNarrowerThanWeights) {
  const Gpt2 model(tiny_gpt(), kMicroBatchSize, 8, DType::F32);
  options_.dtype = DType::F32;
  options_.chunk_bytes *= 2;
  options_.gradient_dtype = DType::BF16;
  expect_parts(error_of<ConfigError>([&] { prepare(model, options_, {}); }), {"`gradient_dtype`"});
}

TEST_F(Refusals, NoMicroBatches) {
  options_.gradient_accumulation = 0;
  expect_parts(error_of<ConfigError>([&] { plan({}); }), {"`gradient_accumulation` 0"});
}

TEST_F(Refusals, ModelsOfInvalidShapes) {
  Gpt2Config config = tiny_gpt();
  EXPECT_THROW(Gpt2(config, 0, 8, DType::BF16), ConfigError);
  EXPECT_THROW(Gpt2(config, 2, 0, DType::BF16), ConfigError);
  EXPECT_THROW(Gpt2(config, 2, config.max_positions + 1, DType::BF16), ConfigError);
  config.num_heads = 3;
  EXPECT_THROW(Gpt2(config, 2, 8, DType::BF16), ConfigError);
}

TEST_F(Refusals, ADeviceWithMoreThreadsThanThePlan) {
  const Preparation prepared = plan({.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 2}});
  EXPECT_THROW(Trainer(model_, *device, prepared), ConfigError);
}

/// A weight whose second use gets no gradient, because its result is a constant input of the next
/// primitive.
class DetachedUse : public Model {
 public:
  const Parameters& parameters() const override { return parameters_; }
  std::vector<InputSpec> inputs() const override {
    return {{"x", {4, 8}, DType::BF16}, {"labels", {4}, DType::I32}};
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    const Variable once = linear(tape, x, weight_);
    const Variable teacher = linear(tape, {.value = once.value}, weight_);
    cross_entropy(tape, linear(tape, {.value = teacher.value}, head_), inputs[1]);
    cross_entropy(tape, once, inputs[1]);
  }

 private:
  Parameters parameters_;
  ParameterId weight_ = parameters_.add("shared", {8, 8}, Init::normal(1));
  ParameterId head_ = parameters_.add("head", {8, 8}, Init::normal(1));
};

TEST_F(Refusals, AParameterWithGradientsInSomeOfItsUses) {
  expect_parts(error_of<ConfigError>([&] { prepare(DetachedUse(), options_, {}); }),
               {"'shared'", "used 2 times", "in 1 of them"});
}

TEST_F(Refusals, ALimitOfZeroSkippedStepsAllowsGoodSteps) {
  options_.max_skipped_steps = 0;
  const Preparation prepared = plan({.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1}});
  Trainer trainer(model_, *device, prepared);
  EXPECT_FALSE(trainer.step(Data(tiny_gpt(), 8, 2, 1).micro_batches(), kLearningRate).skipped);
}

// ---- Broken contracts of a step -----------------------------------------------------------------

/// Calls a trainer with invalid arguments. Destroying the trainer afterwards must be safe.
class BrokenContract : public Refusals {
 protected:
  void make(const Model& model) {
    const Preparation resident = prepare(model, options_, {.device = {.num_threads = 1}});
    prepared_ =
        prepare(model, options_,
                {.device_memory = resident.smallest_device_bytes, .device = {.num_threads = 1}});
    device_ = create_case_device(prepared_, run_);
    trainer_ = std::make_unique<Trainer>(model, *device_, prepared_);
  }
  void expect_logic_error(std::span<const MicroBatch> batches, const std::string& part) {
    EXPECT_SAYS(error_of<LogicError>([&] { trainer_->step(batches, kLearningRate); }), part);
    trainer_.reset();
    EXPECT_EQ(device_->used_bytes(), prepared_.ledger.bytes("workspace", Tier::Device));
  }

  const Watchdog watchdog_;
  Data data_{tiny_gpt(), 8, 2, 1};
  Preparation prepared_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(BrokenContract, WrongNumberOfMicroBatches) {
  make(model_);
  expect_logic_error(std::span(data_.micro_batches()).first(1), "gradient_accumulation");
}

TEST_F(BrokenContract, WrongNumberOfMicroBatchesOfAnEvaluation) {
  make(model_);
  EXPECT_THROW(trainer_->evaluate(data_.micro_batches()), LogicError);
  EXPECT_THROW(trainer_->evaluate({}), LogicError);
}

TEST_F(BrokenContract, TrainingContinuesAfterAWrongInput) {
  make(model_);
  const Data longer(tiny_gpt(), 9, 2, 1);
  EXPECT_THROW(trainer_->step(longer.micro_batches(), kLearningRate), LogicError);
  EXPECT_GT(trainer_->step(data_.micro_batches(), kLearningRate).loss, 0);
}

TEST_F(BrokenContract, NoTargets) {
  make(model_);
  std::vector<MicroBatch> batches = data_.micro_batches();
  for (MicroBatch& batch : batches) batch.num_targets = 0;
  EXPECT_THROW(trainer_->step(batches, kLearningRate), NumericError);
  EXPECT_THROW(trainer_->evaluate(std::span(batches).first(1)), NumericError);
}

TEST_F(BrokenContract, WrongShape) {
  make(model_);
  const Data longer(tiny_gpt(), 9, 2, 1);
  expect_logic_error(longer.micro_batches(), "input 'tokens'");
}

TEST_F(BrokenContract, WrongType) {
  make(model_);
  std::vector<MicroBatch> batches = data_.micro_batches();
  batches[1].inputs[2].dtype = DType::F32;
  expect_logic_error(batches, "input 'targets'");
}

TEST_F(BrokenContract, WrongNumberOfInputs) {
  make(model_);
  std::vector<MicroBatch> batches = data_.micro_batches();
  batches[1].inputs.pop_back();
  expect_logic_error(batches, "number of inputs");
}

TEST_F(BrokenContract, UnknownParameter) {
  make(model_);
  EXPECT_THROW(trainer_->read_parameter("h.0.nothing"), ConfigError);
  EXPECT_THROW(trainer_->write_parameter("wpe.weight", {}), LogicError);
}

/// Has another number of layers if `strays` is set; the last layer is repeated.
class StrayingModel : public ForwardingModel {
 public:
  StrayingModel(const Model& traced, uint32_t num_layers)
      : ForwardingModel(traced), num_layers_(num_layers) {}
  uint32_t num_layers() const override { return strays ? num_layers_ : model_.num_layers(); }
  Variable layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i,
                 Variable x) const override {
    return model_.layer(tape, inputs, std::min(i, model_.num_layers() - 1), x);
  }
  bool strays = false;

 private:
  const uint32_t num_layers_;
};

Gpt2Config with_layers(int64_t num_layers) {
  Gpt2Config config = tiny_gpt();
  config.num_layers = num_layers;
  return config;
}

/// The first step runs the traced layers, the second fewer or more.
class StrayingStep : public BrokenContract, public testing::WithParamInterface<uint32_t> {};

TEST_P(StrayingStep, IsALogicError) {
  const Gpt2 traced(with_layers(2), kMicroBatchSize, 8, DType::BF16);
  StrayingModel model(traced, GetParam());
  make(model);
  EXPECT_GT(trainer_->step(data_.micro_batches(), kLearningRate).loss, 0);
  model.strays = true;
  expect_logic_error(data_.micro_batches(), "uses other parameters than its trace says");
}

INSTANTIATE_TEST_SUITE_P(Layers, StrayingStep, testing::Values(1u, 3u));

/// Runs all calls of another model in its end(), `times` times: no calls if 0, too many if 2.
class UnsteadyModel : public Model {
 public:
  explicit UnsteadyModel(const Model& model) : model_(model) {}
  const Parameters& parameters() const override { return model_.parameters(); }
  std::vector<InputSpec> inputs() const override { return model_.inputs(); }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable) const override {
    for (int time = 0; time < times; ++time) {
      Variable x = model_.begin(tape, inputs);
      for (uint32_t i = 0; i < model_.num_layers(); ++i) x = model_.layer(tape, inputs, i, x);
      model_.end(tape, inputs, x);
    }
  }
  int times = 1;

 private:
  const Model& model_;
};

TEST_F(BrokenContract, FewerCallsThanTheTrace) {
  UnsteadyModel model(model_);
  make(model);
  model.times = 0;
  expect_logic_error(data_.micro_batches(), "fewer calls");
}

TEST_F(BrokenContract, MoreCallsThanTheTrace) {
  options_.gradient_accumulation = 1;
  UnsteadyModel model(model_);
  make(model);
  model.times = 2;
  expect_logic_error(std::span(data_.micro_batches()).first(1), "but its trace says");
}

}  // namespace
}  // namespace ebb::test::tests_of_refusals
