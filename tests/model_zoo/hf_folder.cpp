#include "tests/model_zoo/hf_folder.h"

#include <algorithm>
#include <map>

#include "io/json_file.h"
#include "model_zoo/hugging_face_config.h"

namespace ebb::test {

Tensor tensor_of(const std::vector<int32_t>& values, Shape shape) {
  return {reinterpret_cast<std::byte*>(const_cast<int32_t*>(values.data())), DType::I32, shape};
}

std::string hf_folder(const std::string& name) { return std::string(EBB_FIXTURES) + "/hf/" + name; }

HfLosses read_hf_losses(const std::string& name) {
  const nlohmann::json json = read_json_file(hf_folder(name) + "/losses.json");
  HfLosses losses{.batch = json.at("batch"),
                  .length = json.at("length"),
                  .batches = {},
                  .losses = json.at("losses").get<std::vector<double>>()};
  for (const nlohmann::json& batch : json.at("batches")) {
    losses.batches.push_back({.tokens = batch.at("tokens"),
                              .targets = batch.at("targets"),
                              .token_types = batch.value("token_types", std::vector<int32_t>())});
  }
  return losses;
}

LoadedModel::LoadedModel(const std::string& folder, int64_t batch, int64_t length, DType dtype)
    : folder_(folder), config_(read_model_config(folder)), batch_(batch), length_(length) {
  model_ = create_model(config_, {.batch_size = batch, .length = length}, dtype);
  prepared_ = prepare(
      *model_,
      {.dtype = dtype, .chunk_bytes = 1 << 20, .evaluation_batches = 1, .random_weights = false},
      {.device = {.num_threads = 1}});
  tensors_ = match_tensors(config_, model_->parameters(), folder_);
  device_ = create_device({.profile = {.num_threads = 1},
                           .memory_bytes = prepared_.ledger.total(Tier::Device),
                           .poison = true});
  trainer_ = std::make_unique<Trainer>(*model_, *device_, prepared_);
  load_weights(folder_, tensors_, [this](ParameterId id, uint64_t first, auto values) {
    trainer_->write_parameter(id, first, values);
  });
}

MicroBatch LoadedModel::micro_batch(const HfLosses::Batch& batch) {
  positions_.clear();
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    positions_.push_back(static_cast<int32_t>(static_cast<int64_t>(i) % length_));
  }
  zeros_.assign(batch.tokens.size(), 0);
  const std::map<std::string, const std::vector<int32_t>*> values = {
      {"tokens", &batch.tokens},
      {"positions", &positions_},
      {"targets", &batch.targets},
      {"token_types", &batch.token_types},
      {"document_starts", &zeros_}};
  MicroBatch result;
  for (const InputSpec& spec : model_->inputs()) {
    result.inputs.push_back(tensor_of(*values.at(spec.name), {batch_, length_}));
  }
  result.num_targets = static_cast<uint64_t>(
      std::count_if(batch.targets.begin(), batch.targets.end(), [](int t) { return t >= 0; }));
  return result;
}

double LoadedModel::loss(const HfLosses::Batch& batch) {
  const MicroBatch inputs = micro_batch(batch);
  return trainer_->evaluate({&inputs, 1});
}

void LoadedModel::train(const HfLosses::Batch& batch, double learning_rate) {
  const MicroBatch inputs = micro_batch(batch);
  trainer_->step({&inputs, 1}, learning_rate);
}

void LoadedModel::store(const std::string& to, StoredType type, uint64_t shard_bytes) {
  SafetensorsFolderWriter writer(to, stored_tensors(tensors_, type), shard_bytes);
  store_weights(
      tensors_,
      [this](ParameterId id, uint64_t first, std::span<float> values) {
        trainer_->read_parameter(id, first, values);
      },
      writer);
  writer.finish();
}

}  // namespace ebb::test
