// Hugging Face's config.json: which model it describes, and one for a model of ours.
//
// `architectures` decides. What Ebb does not compute as transformers does (an architecture, an
// activation, a way to scale positions, a quantised type, ...) is refused by name, never guessed; a
// field that is absent has the value that transformers gives it. Both spellings of rotary positions
// are read: rope_theta with rope_scaling, and rope_parameters. Dropout is not read: it is the
// run's, not the model's.
//
// Errors: IoError, FormatError (the file), ConfigError naming file, field, value and what is
// allowed. Pure but for reading.
#pragma once

#include <string>

#include "device/dtype.h"
#include "model_zoo/architecture.h"

namespace ebb {

/// Reads `folder`/config.json.
ModelConfig read_model_config(const std::string& folder);

/// config.json for weights stored in this type, for models that did not come with one.
std::string make_config_json(const ModelConfig& config, DType dtype);
/// The config.json of a folder, for weights stored in this type: other fields as they were.
std::string copy_config_json(const std::string& folder, DType dtype);

}  // namespace ebb
