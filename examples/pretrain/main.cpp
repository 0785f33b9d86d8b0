// Trains a GPT over bytes from random weights, in the least device memory that works, and can be
// stopped or killed at any moment: run again, it goes on from the newest state with the same bits.
//
//   pretrain TEXT FOLDER [STEPS [STOP]]    [100]; STOP: end after so many steps, as if killed there
//
// FOLDER/state.ebb is the state; FOLDER/weights, once all steps are made, a Hugging Face folder.
#include <ebb/ebb.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "../text_batches.h"

namespace {

constexpr int64_t kBatch = 4, kLength = 64;
constexpr uint32_t kNumBatches = 2;  // in a step
constexpr uint64_t kSaveSteps = 10;

int pretrain(const std::string& text, const std::string& folder, uint64_t num_steps,
             uint64_t stop) {
  const ebb::ModelConfig config = ebb::find_preset("toy-bytes").config;
  const ebb::TrainerOptions options{
      .chunk_bytes = 128 << 10, .gradient_accumulation = kNumBatches, .seed = 1};
  const auto model =
      ebb::create_model(config, {.batch_size = kBatch, .length = kLength}, options.dtype);

  // The first plan only asks: nothing is allocated before the trainer is there.
  const ebb::Preparation roomy = ebb::prepare(*model, options, {});
  const size_t budget = roomy.smallest_device_bytes;
  const ebb::Preparation prepared = ebb::prepare(*model, options, {.device_memory = budget});
  std::printf(
      "%llu parameters, %s of state in host memory; device: %s (%s would hold everything)\n",
      static_cast<unsigned long long>(ebb::num_parameters(config)),
      ebb::format_bytes(ebb::state_file_bytes(*prepared.layout)).c_str(),
      ebb::format_bytes(budget).c_str(), ebb::format_bytes(roomy.full_device_bytes).c_str());
  const auto device = ebb::create_device({.memory_bytes = budget});
  ebb::Trainer trainer(*model, *device, prepared);

  const std::string state = folder + "/state.ebb";
  std::filesystem::create_directories(folder);
  if (std::filesystem::exists(state)) ebb::read_state(trainer, state);

  const ebb::TokenData data({text});  // bytes are tokens
  const ebb::SampleOrder order(data.num_samples(kLength), ebb::DataOrder::Shuffled, options.seed);
  TextBatches batches(data, kNumBatches, kBatch, kLength);
  const ebb::LearningRate rate{
      .peak = 3e-3, .minimum = 3e-4, .warmup_steps = 10, .num_steps = num_steps};
  // Data and learning rate follow from the number of steps alone, so the state says where to go on.
  const uint64_t first = static_cast<uint64_t>(trainer.num_updates()) + trainer.num_skipped();
  for (uint64_t step = first; step < std::min(stop, num_steps); ++step) {
    const auto sample = [&](size_t i) { return order.sample(step * kNumBatches * kBatch + i); };
    const ebb::StepResult result = trainer.step(batches.load(sample), rate.at(step));
    if ((step + 1) % kSaveSteps != 0) continue;
    ebb::write_state(trainer.lock_state(), state);  // the old one stands until the new is whole
    std::printf("step %llu  loss %.4f\n", static_cast<unsigned long long>(step + 1), result.loss);
  }
  if (stop < num_steps) return 0;
  std::printf("state %016llx\n", static_cast<unsigned long long>(trainer.state_hash()));
  ebb::NewFolder weights(folder + "/weights");
  ebb::write_weights(trainer.lock_state(), config, model->parameters(), ebb::DType::BF16, "",
                     weights.path());
  weights.commit();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw std::runtime_error("usage: pretrain TEXT FOLDER [STEPS [STOP]]");
    const uint64_t num_steps = argc > 3 ? std::stoull(argv[3]) : 100;
    return pretrain(argv[1], argv[2], num_steps, argc > 4 ? std::stoull(argv[4]) : num_steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
