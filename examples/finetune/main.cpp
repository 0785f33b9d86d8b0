// Takes a Hugging Face folder and data, trains the model on, and writes a Hugging Face folder.
//
//   finetune MODEL DATA NEW_FOLDER [STEPS [u16|u32]]    [100 steps]
//
// DATA: text, for a model over bytes; or token ids of the model's tokenizer, as a .bin of 16- or
// 32-bit numbers (which, is said behind the steps where the file has no header of its own). The
// last sequences are not trained on: their loss, before and after, is what the training was worth.
#include <ebb/ebb.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "../text_batches.h"

namespace {

constexpr int64_t kBatch = 4;       // sequences in a micro-batch
constexpr int64_t kNumBatches = 2;  // micro-batches in a step
constexpr int64_t kLongest = 512;   // tokens in a sequence, where the model has the positions
constexpr size_t kNumHeldOut = kBatch * kNumBatches;

ebb::TrainerOptions options() {
  ebb::TrainerOptions options;
  options.gradient_accumulation = kNumBatches;
  options.evaluation_batches = kNumBatches;
  options.adam.weight_decay = 0;
  options.random_weights = false;  // they come from the folder
  return options;
}

void load(ebb::Trainer& trainer, const ebb::ModelConfig& config, const ebb::Model& model,
          const std::string& from) {
  const ebb::SafetensorsFolder folder(from);
  const auto tensors = ebb::match_tensors(config, model.parameters(), folder);
  ebb::load_weights(folder, tensors,
                    [&](ebb::ParameterId id, uint64_t first, std::span<const float> values) {
                      trainer.write_parameter(id, first, values);
                    });
}

void save(ebb::Trainer& trainer, const ebb::ModelConfig& config, const ebb::Model& model,
          const std::string& from, ebb::NewFolder& to) {
  ebb::write_weights(trainer.lock_state(), config, model.parameters(), ebb::DType::BF16, from,
                     to.path());  // with the tokenizer's files of `from`
  to.commit();                    // all of it appears at once
}

ebb::TokenType token_type(const std::string& name) {
  if (name == "u16") return ebb::TokenType::U16;
  if (name == "u32") return ebb::TokenType::U32;
  throw std::runtime_error(name + ": tokens are u16 or u32");
}

int finetune(const std::string& from, ebb::TokenData& data, const std::string& to,
             uint64_t num_steps) {
  const ebb::ModelConfig config = ebb::read_model_config(from);
  if (!ebb::predicts_next_token(config)) {
    throw std::runtime_error(from + ": not a model that predicts the next token");
  }
  const int64_t vocabulary = ebb::sizes_of(config).vocabulary;
  if (data.type() == ebb::TokenType::Bytes && vocabulary != 256) {
    throw std::runtime_error(from + ": its tokens are not bytes, so text needs tools/tokenize.py");
  }
  const int64_t length = std::min(kLongest, ebb::sizes_of(config).max_positions);
  data.limit_to(static_cast<uint64_t>(vocabulary));
  const size_t num_samples = data.num_samples(static_cast<size_t>(length));
  if (num_samples <= kNumHeldOut) throw std::runtime_error("too few tokens");
  ebb::NewFolder folder(to);  // fails now, not after the training, where there is one already

  // Prepared without a budget, this takes the device memory that is fastest: see examples/embed for
  // one with a budget, and pretrain for the least that works.
  const auto model =
      ebb::create_model(config, {.batch_size = kBatch, .length = length}, options().dtype);
  const ebb::Preparation prepared = ebb::prepare(*model, options(), {});
  const auto device = ebb::create_device({});
  ebb::Trainer trainer(*model, *device, prepared);
  load(trainer, config, *model, from);

  const size_t num_trained = num_samples - kNumHeldOut;
  const ebb::SampleOrder order(num_trained, ebb::DataOrder::Shuffled, 1);
  TextBatches batches(data, kNumBatches, kBatch, length);
  const auto held_out = [&] {
    return trainer.evaluate(batches.load([&](size_t i) { return num_trained + i; }));
  };
  const ebb::LearningRate rate{
      .peak = 1e-4, .minimum = 0, .warmup_steps = num_steps / 10, .num_steps = num_steps};
  const double before = held_out();
  for (uint64_t step = 0; step < num_steps; ++step) {
    const auto sample = [&](size_t i) { return order.sample(step * kNumHeldOut + i); };
    const ebb::StepResult result = trainer.step(batches.load(sample), rate.at(step));
    if ((step + 1) % 10 == 0) {
      std::printf("step %llu  loss %.4f\n", static_cast<unsigned long long>(step + 1), result.loss);
    }
  }
  const double after = held_out();
  std::printf("held-out loss %.4f -> %.4f\n", before, after);
  save(trainer, config, *model, from, folder);
  return after < before ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 4)
      throw std::runtime_error("usage: finetune MODEL DATA NEW_FOLDER [STEPS [u16|u32]]");
    ebb::TokenData data({argv[2]}, argc > 5 ? token_type(argv[5]) : ebb::TokenType::Auto);
    return finetune(argv[1], data, argv[3], argc > 4 ? std::stoull(argv[4]) : 100);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
