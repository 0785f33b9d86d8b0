// Maps the tensors of a Hugging Face folder to the parameters of a model.
//
// Names differ in four ways: the prefix of the base model may be missing, some names are older
// names, a tied weight may be stored under the name of its copy alone, and some parameters are
// several tensors in the folder (their rows in order). The matrices of GPT-2 are stored transposed.
// Buffers, heads of other tasks and copies of tied weights are known by name and are no parameters.
// Any other missing or extra tensor is an error that names the file and the tensor.
//
// Errors: FormatError with file and offset (a wrong shape or type, an extra tensor, a copy that
// differs), ConfigError (a missing tensor). Functions have no state; they only read files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors_folder.h"
#include "model_zoo/architecture.h"

namespace ebb {

/// The rows of a parameter that are one tensor in the folder.
struct MappedTensor {
  ParameterId parameter = 0;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t num_columns = 1;  ///< 1 for a vector, whose stored shape has one dimension
  bool is_vector = false;
  bool transposed = false;  ///< stored as (columns, rows)
  std::string name;         ///< of the tensor in the folder

  std::vector<uint64_t> stored_shape() const;
  uint64_t num_elements() const { return static_cast<uint64_t>(num_rows * num_columns); }
};

/// The tensors with all elements of all parameters, each once, in the order of the parameters. The
/// names are the current names of transformers.
std::vector<MappedTensor> map_tensors(const ModelConfig& config, const Parameters& parameters);

/// The same with the names in the folder. Checks that every tensor is present with the right shape
/// and a weight type, and that no other tensor of the folder is a weight of the model. If
/// `is_base`, tensors of the head may be missing; they keep their names of map_tensors().
std::vector<MappedTensor> match_tensors(const ModelConfig& config, const Parameters& parameters,
                                        const SafetensorsFolder& folder, bool is_base = false);

/// The tensors of the folder that belong to heads of other tasks. The model has no such head, so
/// that they are not saved with it. Buffers do not count, because transformers makes them anew.
std::vector<std::string> tensors_of_other_heads(const ModelConfig& config,
                                                const SafetensorsFolder& folder);

}  // namespace ebb
