// Loads small models that transformers saved (tests/fixtures/make_hf_folders.py) into a trainer of
// Ebb.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model_zoo/architecture.h"
#include "model_zoo/hugging_face_weights.h"
#include "scheduler/run/trainer.h"

namespace ebb::test {

inline const std::vector<std::string> kHfCases = {"gpt2",  "llama", "mistral",
                                                  "qwen2", "qwen3", "bert"};

/// The path of the folder of a case.
std::string hf_folder(const std::string& name);

/// The mean loss of each batch that transformers computes in fp64.
struct HfLosses {
  struct Batch {
    std::vector<int32_t> tokens, targets, token_types;
  };
  int64_t batch = 0, length = 0;
  std::vector<Batch> batches;
  std::vector<double> losses;
};
HfLosses read_hf_losses(const std::string& name);

/// A view of tokens or labels, which a trainer only reads.
Tensor tensor_of(const std::vector<int32_t>& values, Shape shape);

/// A trainer with the weights of a folder.
class LoadedModel {
 public:
  LoadedModel(const std::string& folder, int64_t batch, int64_t length, DType dtype);

  const ModelConfig& config() const { return config_; }
  const Model& model() const { return *model_; }
  std::span<const MappedTensor> tensors() const { return tensors_; }
  Trainer& trainer() { return *trainer_; }
  double loss(const HfLosses::Batch& batch);
  void train(const HfLosses::Batch& batch, double learning_rate);
  /// Writes the current weights to another folder.
  void store(const std::string& to, StoredType type, uint64_t shard_bytes = kDefaultShardBytes);

 private:
  MicroBatch micro_batch(const HfLosses::Batch& batch);

  SafetensorsFolder folder_;
  ModelConfig config_;
  int64_t batch_, length_;
  std::unique_ptr<const Model> model_;
  Preparation prepared_;
  std::vector<MappedTensor> tensors_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<int32_t> positions_, zeros_;
};

}  // namespace ebb::test
