// Rotary positions in a config.json, old (rope_theta, rope_scaling) and new (rope_parameters). Only
// for source files.
#pragma once

#include "model_zoo/config_fields.h"
#include "model_zoo/rotary.h"

namespace ebb {

/// ConfigError for a scaling, or a field of one, that is not known.
Rotary read_rotary(const ConfigFields& fields, int64_t max_positions);
/// As rope_parameters.
nlohmann::ordered_json rope_parameters(const Rotary& rotary);

}  // namespace ebb
