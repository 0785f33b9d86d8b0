#include "model_zoo/rope_fields.h"

#include <cstdint>
#include <limits>

namespace ebb {
namespace {

constexpr double kDefaultTheta = 10000;

// Far beyond published models, and near enough to 1 that no frequency overflows or becomes 0.
constexpr NumberRange kTheta{1e-3, 1e15};
constexpr NumberRange kFactor{1e-6, 1e6};
constexpr NumberRange kPositions{1, std::numeric_limits<int32_t>::max()};
constexpr NumberRange kScale{0, 1e6};  // 0: as if the field were absent

void read_linear(const ConfigFields& rope, Rotary& rotary) {
  rope.require_known({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"});
  rotary.scaling = RotaryScaling::Linear;
  rotary.factor = rope.number("factor", kFactor);
}

/// The trained length of llama3 and yarn, as transformers 5 finds it (modeling_rope_utils.py,
/// standardize_rope_params): the field beside the rope parameters, then the one among them, then
/// max_position_embeddings.
double original_positions(const ConfigFields& fields, const ConfigFields& rope,
                          int64_t max_positions) {
  constexpr std::string_view kName = "original_max_position_embeddings";
  if (const auto outside = fields.find_number(kName, kPositions)) return *outside;
  return rope.find_number(kName, kPositions).value_or(static_cast<double>(max_positions));
}

void read_llama3(const ConfigFields& fields, const ConfigFields& rope, int64_t max_positions,
                 Rotary& rotary) {
  rope.require_known({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
                      "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  rotary.scaling = RotaryScaling::Llama3;
  rotary.factor = rope.number("factor", kFactor);
  rotary.low_freq_factor = rope.number("low_freq_factor", kFactor);
  rotary.high_freq_factor = rope.number("high_freq_factor", kFactor);
  rotary.original_max_positions = original_positions(fields, rope, max_positions);
}

/// Without a field `factor` the factor is the ratio of max_positions to the original positions.
void read_yarn(const ConfigFields& fields, const ConfigFields& rope, int64_t max_positions,
               Rotary& rotary) {
  rope.require_known({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
                      "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate",
                      "attention_factor", "mscale", "mscale_all_dim"});
  rotary.scaling = RotaryScaling::Yarn;
  rotary.original_max_positions = original_positions(fields, rope, max_positions);
  rotary.factor = rope.find_number("factor", kFactor)
                      .value_or(static_cast<double>(max_positions) / rotary.original_max_positions);
  rotary.beta_fast = rope.find_number("beta_fast", kFactor).value_or(rotary.beta_fast);
  rotary.beta_slow = rope.find_number("beta_slow", kFactor).value_or(rotary.beta_slow);
  // Python reads null as false here, and as absent in the other fields.
  rotary.truncate = !rope.is_null("truncate") && rope.flag("truncate", true);
  rotary.attention_factor = rope.find_number("attention_factor", kFactor);
  rotary.mscale = rope.find_number("mscale", kScale);
  rotary.mscale_all_dim = rope.find_number("mscale_all_dim", kScale);
}

void read_scaling(const ConfigFields& fields, const ConfigFields& rope, int64_t max_positions,
                  Rotary& rotary) {
  const char* name = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.find_text(name).value_or("default");
  if (type == "linear") return read_linear(rope, rotary);
  if (type == "llama3") return read_llama3(fields, rope, max_positions, rotary);
  if (type == "yarn") return read_yarn(fields, rope, max_positions, rotary);
  if (type != "default") rope.refuse(name, "'default', 'linear', 'llama3' or 'yarn'");
  rope.require_known({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
}

void require_whole_heads(const ConfigFields& fields) {
  if (fields.find_number("partial_rotary_factor").value_or(1) != 1) {
    fields.refuse("partial_rotary_factor", "1: all elements of a head turn");
  }
}

/// The field among the rope parameters counts before the one outside.
double read_theta(const ConfigFields& fields, const std::optional<ConfigFields>& rope) {
  constexpr std::string_view kName = "rope_theta";
  if (rope && (rope->has(kName) || rope->is_null(kName))) return rope->number(kName, 0, kTheta);
  return fields.number(kName, kDefaultTheta, kTheta);
}

}  // namespace

Rotary read_rotary(const ConfigFields& fields, int64_t max_positions) {
  require_whole_heads(fields);
  const nlohmann::json *old = fields.find("rope_scaling"), *now = fields.find("rope_parameters");
  if (old != nullptr && now != nullptr && *old != *now) {
    fields.refuse("rope_scaling", "the same value as rope_parameters");
  }
  const char* name = now != nullptr ? "rope_parameters" : "rope_scaling";
  const auto rope = fields.find_object(name);
  Rotary rotary{.theta = read_theta(fields, rope)};
  if (rope) {
    require_whole_heads(*rope);
    read_scaling(fields, *rope, max_positions, rotary);
  }
  return rotary;
}

nlohmann::ordered_json rope_parameters(const Rotary& rotary) {
  nlohmann::ordered_json rope = {{"rope_theta", rotary.theta}, {"rope_type", "default"}};
  if (rotary.scaling == RotaryScaling::None) return rope;
  rope["factor"] = rotary.factor;
  if (rotary.scaling == RotaryScaling::Linear) return rope["rope_type"] = "linear", rope;
  rope["original_max_position_embeddings"] = static_cast<int64_t>(rotary.original_max_positions);
  if (rotary.scaling == RotaryScaling::Llama3) {
    rope["rope_type"] = "llama3";
    rope["low_freq_factor"] = rotary.low_freq_factor;
    rope["high_freq_factor"] = rotary.high_freq_factor;
    return rope;
  }
  rope["rope_type"] = "yarn";
  rope["beta_fast"] = rotary.beta_fast;
  rope["beta_slow"] = rotary.beta_slow;
  rope["truncate"] = rotary.truncate;
  if (rotary.attention_factor) rope["attention_factor"] = *rotary.attention_factor;
  if (rotary.mscale) rope["mscale"] = *rotary.mscale;
  if (rotary.mscale_all_dim) rope["mscale_all_dim"] = *rotary.mscale_all_dim;
  return rope;
}

}  // namespace ebb
