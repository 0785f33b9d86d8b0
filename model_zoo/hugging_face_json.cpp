// Writes config.json for a model: made from a configuration, or copied from another folder.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/rope_fields.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return "float32";
    case DType::BF16:
      return "bfloat16";
    case DType::F16:
      return "float16";
    default:
      EBB_CHECK(false, "weights are not stored in this type");
  }
}

/// The shortest decimal number that rounds to this fp32: 1e-05, not 9.99999974738e-06.
double shortest(float value) { return std::stod(fmt::to_string(value)); }

Json to_json(const Gpt2Config& c) {
  constexpr int64_t kEndOfText = 50256;  // transformers assumes it if config.json names none
  Json json = {{"architectures", Json::array({"GPT2LMHeadModel"})},
               {"model_type", "gpt2"},
               {"activation_function", "gelu_new"},
               {"layer_norm_epsilon", shortest(c.layer_norm_epsilon)},
               {"n_ctx", c.max_positions},
               {"n_embd", c.channels},
               {"n_head", c.num_heads},
               {"n_inner", c.mlp_channels ? Json(*c.mlp_channels) : Json()},
               {"n_layer", c.num_layers},
               {"n_positions", c.max_positions},
               {"scale_attn_weights", true},
               {"tie_word_embeddings", true},
               {"vocab_size", c.vocabulary}};
  if (c.vocabulary <= kEndOfText) json["bos_token_id"] = json["eos_token_id"] = nullptr;
  return json;
}

Json to_json(const BertConfig& c) {
  return {{"architectures", Json::array({"BertForMaskedLM"})},
          {"model_type", "bert"},
          {"hidden_act", "gelu"},
          {"hidden_size", c.channels},
          {"intermediate_size", c.mlp_channels},
          {"layer_norm_eps", shortest(c.norm_epsilon)},
          {"max_position_embeddings", c.max_positions},
          {"num_attention_heads", c.num_heads},
          {"num_hidden_layers", c.num_layers},
          {"position_embedding_type", "absolute"},
          {"tie_word_embeddings", true},
          {"type_vocab_size", c.num_token_types},
          {"vocab_size", c.vocabulary}};
}

/// The names of the member of the Llama family that has the features of this configuration.
std::pair<const char*, const char*> family_member(const LlamaConfig& c) {
  if (c.qk_norm) return {"Qwen3ForCausalLM", "qwen3"};
  if (c.qkv_bias && !c.output_bias) return {"Qwen2ForCausalLM", "qwen2"};
  if (c.sliding_window) return {"MistralForCausalLM", "mistral"};
  return {"LlamaForCausalLM", "llama"};
}

Json to_json(const LlamaConfig& c) {
  const auto [architecture, model_type] = family_member(c);
  const bool qwen = std::string_view(model_type).starts_with("qwen");
  Json json = {{"architectures", Json::array({architecture})},
               {"model_type", model_type},
               {"attention_bias", c.output_bias},
               {"head_dim", c.head_dim},
               {"hidden_act", "silu"},
               {"hidden_size", c.channels},
               {"intermediate_size", c.mlp_channels},
               {"max_position_embeddings", c.max_positions},
               {"mlp_bias", c.mlp_bias},
               {"num_attention_heads", c.num_heads},
               {"num_hidden_layers", c.num_layers},
               {"num_key_value_heads", c.num_kv_heads},
               {"rms_norm_eps", shortest(c.norm_epsilon)},
               {"rope_parameters", rope_parameters(c.rotary)},
               {"rope_theta", c.rotary.theta},
               {"tie_word_embeddings", c.tied_head},
               {"vocab_size", c.vocabulary}};
  // Older versions of transformers read rope_scaling. They do not know "default" as a scaling.
  if (c.rotary.scaling != RotaryScaling::None) json["rope_scaling"] = json["rope_parameters"];
  json["sliding_window"] = c.sliding_window ? Json(*c.sliding_window) : Json();
  if (qwen) {
    json["use_sliding_window"] = c.sliding_window.has_value();
    json["max_window_layers"] = c.sliding_window ? 0 : c.num_layers;
  }
  return json;
}

std::string text_of(Json json, DType dtype) {
  const bool new_name = json.contains("dtype");
  if (json.contains("torch_dtype") || !new_name) json["torch_dtype"] = torch_name(dtype);
  if (new_name) json["dtype"] = torch_name(dtype);
  return json_text(json, 2) + "\n";
}

}  // namespace

std::string make_config_json(const ModelConfig& config, DType dtype) {
  return text_of(std::visit([](const auto& c) { return to_json(c); }, config), dtype);
}

std::string copy_config_json(const std::string& folder, DType dtype) {
  return text_of(read_ordered_json_file(folder + "/config.json"), dtype);
}

}  // namespace ebb
