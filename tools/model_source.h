// Where a run's model comes from: a preset, or a Hugging Face folder with or without its weights.
//
// Errors: ConfigError naming the flag; IoError and FormatError (the folder).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_zoo/architecture.h"
#include "model_zoo/hugging_face_weights.h"
#include "scheduler/run/trainer.h"

namespace ebb {

struct ModelSource {
  std::string name;    ///< as given by the user, or the folder that was found in it
  std::string folder;  ///< with config.json; empty: a preset
  ModelConfig config;
  bool has_weights =
      false;           ///< weights come from the folder; otherwise they are random, from the seed
  double dropout = 0;  ///< in config.json; the run applies --dropout
  std::string tokenizer = {};  ///< the folder of its tokenizer; empty: it has none

  int64_t vocabulary() const { return sizes_of(config).vocabulary; }
  /// Whether the model's tokens are bytes, so that text can be given as it is.
  bool reads_bytes() const { return vocabulary() == 256 && tokenizer.empty(); }
};

ModelSource preset_source(const std::string& name);
/// The preset with another vocabulary, that of a tokenizer.
ModelSource preset_source(const std::string& name, const std::string& tokenizer,
                          int64_t vocabulary);
/// `random`: uses only the configuration of the folder.
ModelSource folder_source(const std::string& name, bool random);

/// Returns `name` if it is a folder, or the newest checkpoint in it if it is the folder of --save;
/// otherwise `name` is a hub id, and its snapshot in the local cache is returned
/// (tools/hub_cache.h).
std::string find_model_folder(const std::string& name);

/// The folder with the tokenizer that --tokenizer names, by itself or by a hub id.
std::string tokenizer_folder(const std::string& name);

/// Throws ConfigError if a tokenizer with `vocabulary` tokens has more than the vocabulary of a
/// model from a folder. A preset accepts every tokenizer. `tokenizer`: its name for the message.
/// `is_given`: it is that of --tokenizer; if not, that of the model's folder.
void check_tokenizer(const ModelSource& source, const std::string& tokenizer, int64_t vocabulary,
                     bool is_given);

/// The two ways to a tokenizer, for messages: "give --tokenizer DIR ... or --tokenizer train:8192
/// ...".
std::string tokenizer_advice(bool may_train);

/// The weights of a folder, checked against a model.
class SourceWeights {
 public:
  SourceWeights(const ModelSource& source, const Model& model);

  /// What the folder has and the run leaves out, for the header of the command.
  const std::vector<std::string>& notices() const { return notices_; }

  /// Shows its progress if stderr is a terminal.
  void load(Trainer& trainer) const;
  void load(const TakeWeights& take) const;

 private:
  SafetensorsFolder folder_;
  std::vector<MappedTensor> tensors_;
  std::vector<std::string> notices_;
};

}  // namespace ebb
