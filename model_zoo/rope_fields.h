// Rotary positions in a config.json, in the old format (rope_theta, rope_scaling) and the new one
// (rope_parameters). Include this header only in source files. Pure functions.
#pragma once

#include "model_zoo/config_fields.h"
#include "model_zoo/rotary.h"

namespace ebb {

/// Throws ConfigError if a scaling, or a field of it, is unknown.
Rotary read_rotary(const ConfigFields& fields, int64_t max_positions);
/// Returns the fields in the new format.
nlohmann::ordered_json rope_parameters(const Rotary& rotary);

}  // namespace ebb
