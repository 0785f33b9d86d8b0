// Reads the model configuration from a Hugging Face config.json, and writes a config.json for a
// model configuration.
//
// The field `architectures` selects the architecture; without it, `model_type` does. If Ebb does
// not compute something as transformers does (an architecture, an activation, a scaling of
// positions, a quantised type), the error names the field. Sizes must be present, except those for
// which older configurations of transformers have a default; every other absent field has the
// default value of transformers. Both formats of rotary positions are supported: rope_theta with
// rope_scaling, and rope_parameters. Known fields that change the computation of another
// architecture are refused by name; all other unknown fields are ignored.
// Dropout is no part of a ModelConfig, because it is a setting of the run and not of the model.
//
// Errors: IoError, FormatError (the file), ConfigError that names the file, the field, its value
// and the allowed values. Functions have no state; they only read files.
#pragma once

#include <string>

#include "device/dtype.h"
#include "model_zoo/architecture.h"

namespace ebb {

/// Reads `folder`/config.json.
ModelConfig read_model_config(const std::string& folder);

/// Whether config.json describes a base model, whose folder has no head.
bool is_base_model(const std::string& folder);

/// The largest probability of dropout in `folder`/config.json, which transformers applies in
/// training; 0 if there is none.
double read_config_dropout(const std::string& folder);

/// Returns a config.json for weights stored in this type, for models without a config.json.
std::string make_config_json(const ModelConfig& config, DType dtype);
/// Returns the config.json of a folder with this type of weights and all other fields unchanged.
std::string copy_config_json(const std::string& folder, DType dtype);

}  // namespace ebb
