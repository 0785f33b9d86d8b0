#include "tests/model_zoo/hf_folder.h"

#include <algorithm>
#include <map>

#include "io/json_file.h"
#include "model_zoo/hugging_face_config.h"

namespace ebb::test {
namespace {

Tensor view(const std::vector<int32_t>& values, Shape shape) {
  // The trainer only reads it.
  return {reinterpret_cast<std::byte*>(const_cast<int32_t*>(values.data())), DType::I32, shape};
}

}  // namespace

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
      {.num_threads = 1});
  tensors_ = match_tensors(config_, model_->parameters(), folder_);
  device_ = create_device(
      {.memory_bytes = prepared_.ledger.total(Tier::Device), .num_threads = 1, .poison = true});
  trainer_ = std::make_unique<Trainer>(*model_, *device_, prepared_);
  load_weights(folder_, tensors_, [this](ParameterId id, uint64_t first, auto values) {
    trainer_->write_parameter(id, first, values);
  });
}

double LoadedModel::loss(const HfLosses::Batch& batch) {
  const Shape shape{batch_, length_};
  std::vector<int32_t> positions, zeros(batch.tokens.size(), 0);
  for (int64_t b = 0; b < batch_; ++b) {
    for (int32_t t = 0; t < length_; ++t) positions.push_back(t);
  }
  const std::map<std::string, const std::vector<int32_t>*> values = {
      {"tokens", &batch.tokens},
      {"positions", &positions},
      {"targets", &batch.targets},
      {"token_types", &batch.token_types},
      {"document_starts", &zeros}};
  MicroBatch micro_batch;
  for (const InputSpec& spec : model_->inputs()) {
    micro_batch.inputs.push_back(view(*values.at(spec.name), shape));
  }
  micro_batch.num_targets = static_cast<uint64_t>(
      std::count_if(batch.targets.begin(), batch.targets.end(), [](int t) { return t >= 0; }));
  return trainer_->evaluate({&micro_batch, 1});
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
