// The names of the parameters of each architecture in Hugging Face folders, as transformers
// resolves them when it loads a model with its head (transformers 5, core_model_loading.py and
// PreTrainedModel.tie_weights). Pure functions; no errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model_zoo/architecture.h"

namespace ebb {

/// One of the stored tensors that together are one parameter of the model.
struct TensorPart {
  std::string_view name;
  int64_t rows;
};

struct TensorNaming {
  struct Fused {
    std::string_view ours;  ///< in the middle of a name
    std::vector<TensorPart> parts;
  };
  using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;

  std::string_view added_prefix = {};  ///< missing in Ebb's names
  /// The prefix of the base model. Folders that were saved from the base model lack it.
  std::string_view base_prefix = {};
  std::vector<Fused> fused = {};
  std::vector<std::string_view> transposed = {};   ///< ends of names
  Pairs old_ends = {};                             ///< current ones, then older ones
  Pairs copies = {};                               ///< of tied weights: the copy, the original
  std::vector<std::string_view> buffers = {};      ///< ends of names
  std::vector<std::string_view> other_heads = {};  ///< beginnings of names
};

TensorNaming naming_of(const ModelConfig& config);

/// The possible names of a tensor, given the current name of transformers, in the order in
/// which a folder is searched: this name, older names, both without the prefix of the base model,
/// and the names of tied copies, which count only if the original is not stored.
std::vector<std::string> stored_names(const TensorNaming& naming, const std::string& name);

/// Whether a tensor with this name in a folder is a buffer or belongs to a head of another task.
bool is_ignored(const TensorNaming& naming, std::string_view name);
/// Whether a tensor belongs to a head of another task (the pooler of BERT).
bool is_in_other_head(const TensorNaming& naming, std::string_view name);

/// Whether a tensor belongs to the head of the model and not to its base model.
bool is_in_head(const TensorNaming& naming, std::string_view name);

}  // namespace ebb
