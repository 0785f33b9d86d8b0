// Which tensors of a Hugging Face folder are which parameters.
//
// Names differ in three ways: a prefix that may be left out, older names, and projections that are
// one parameter here and several tensors there (rows in order). GPT-2's matrices are stored
// transposed. Buffers, heads of other tasks and copies of tied weights are known by name; anything
// else that is missing or too much is an error that names file and tensor.
//
// Errors: FormatError with file and offset (a wrong shape or type, a tensor too many, a copy that
// differs), ConfigError (a tensor that is missing). Pure but for reading.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors_folder.h"
#include "model_zoo/architecture.h"

namespace ebb {

/// Rows of a parameter that are one tensor there.
struct MappedTensor {
  ParameterId parameter = 0;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t num_columns = 1;  ///< 1 and one-dimensional for vectors
  bool is_vector = false;
  bool transposed = false;  ///< stored as (columns, rows)
  std::string name;         ///< there

  std::vector<uint64_t> stored_shape() const;
  uint64_t num_elements() const { return static_cast<uint64_t>(num_rows * num_columns); }
};

/// Every element of every parameter once, in the order of the parameters; names as transformers
/// writes them today.
std::vector<MappedTensor> map_tensors(const ModelConfig& config, const Parameters& parameters);

/// The same with the names that the folder uses: every one is there with the right shape and a
/// weight type, and whatever else is there is known to be none of the model's weights.
std::vector<MappedTensor> match_tensors(const ModelConfig& config, const Parameters& parameters,
                                        const SafetensorsFolder& folder);

}  // namespace ebb
