#include "model_zoo/hugging_face_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "device/errors.h"
#include "io/json_file.h"
#include "model_zoo/config_fields.h"
#include "model_zoo/rope_fields.h"

namespace ebb {
namespace {

ModelConfig read_gpt2(const ConfigFields& f) {
  // Both names mean the same formula.
  f.require_text("activation_function", {"gelu_new", "gelu_pytorch_tanh"}, "gelu_new");
  f.require_flag("scale_attn_weights", true, true);
  f.require_flag("scale_attn_by_inverse_layer_idx", false, false);
  f.require_flag("add_cross_attention", false, false);
  f.require_flag("tie_word_embeddings", true, true);
  return Gpt2Config{
      .vocabulary = f.size("vocab_size"),
      .max_positions = f.size("n_positions"),
      .channels = f.size("n_embd"),
      .num_layers = f.size("n_layer"),
      .num_heads = f.size("n_head"),
      .mlp_channels = f.find_size("n_inner"),
      .layer_norm_epsilon = static_cast<float>(f.find_number("layer_norm_epsilon").value_or(1e-5))};
}

ModelConfig read_bert(const ConfigFields& f) {
  f.require_text("hidden_act", {"gelu"}, "gelu");
  f.require_text("position_embedding_type", {"absolute"}, "absolute");
  f.require_flag("is_decoder", false, false);
  f.require_flag("add_cross_attention", false, false);
  f.require_flag("tie_word_embeddings", true, true);
  return BertConfig{
      .vocabulary = f.size("vocab_size"),
      .max_positions = f.size("max_position_embeddings"),
      .num_token_types = f.size("type_vocab_size"),
      .channels = f.size("hidden_size"),
      .num_layers = f.size("num_hidden_layers"),
      .num_heads = f.size("num_attention_heads"),
      .mlp_channels = f.size("intermediate_size"),
      .norm_epsilon = static_cast<float>(f.find_number("layer_norm_eps").value_or(1e-12))};
}

/// Reads the fields that all models of the family share. Only older Llama configurations lack the
/// number of key and value heads; there it equals the number of heads.
LlamaConfig read_llama_family(const ConfigFields& f) {
  f.require_text("hidden_act", {"silu", "swish"}, "silu");
  const int64_t channels = f.size("hidden_size"), heads = f.size("num_attention_heads");
  const auto head_dim = f.find_size("head_dim");
  if (!head_dim && channels % heads != 0) {
    f.refuse("num_attention_heads", fmt::format("a divisor of hidden_size {}", channels));
  }
  LlamaConfig config;
  config.vocabulary = f.size("vocab_size");
  config.channels = channels;
  config.num_layers = f.size("num_hidden_layers");
  config.num_heads = heads;
  config.head_dim = head_dim.value_or(channels / heads);
  config.mlp_channels = f.size("intermediate_size");
  config.max_positions = f.size("max_position_embeddings");
  config.norm_epsilon = static_cast<float>(f.number("rms_norm_eps"));
  config.tied_head = f.flag("tie_word_embeddings", false);
  config.rotary = read_rotary(f, config.max_positions);
  return config;
}

ModelConfig read_llama(const ConfigFields& f) {
  LlamaConfig config = read_llama_family(f);
  config.num_kv_heads = f.find_size("num_key_value_heads").value_or(config.num_heads);
  config.qkv_bias = config.output_bias = f.flag("attention_bias", false);
  config.mlp_bias = f.flag("mlp_bias", false);
  return config;
}

ModelConfig read_mistral(const ConfigFields& f) {
  LlamaConfig config = read_llama_family(f);
  config.num_kv_heads = f.size("num_key_value_heads");
  if (!f.is_null("sliding_window")) {
    config.sliding_window = f.find_size("sliding_window").value_or(4096);
  }
  return config;
}

/// Reads the sliding window of Qwen, which all layers or no layers have. Throws ConfigError if only
/// some layers have a window.
std::optional<int64_t> read_qwen_window(const ConfigFields& f, int64_t num_layers) {
  if (!f.flag("use_sliding_window", false)) return std::nullopt;
  int64_t num_windows =
      num_layers - std::min(num_layers, f.find_size("max_window_layers", 0).value_or(28));
  if (const nlohmann::json* types = f.find("layer_types")) {
    num_windows = std::count(types->begin(), types->end(), "sliding_attention");
  }
  if (num_windows == 0) return std::nullopt;
  if (num_windows == num_layers) return f.size("sliding_window");
  throw ConfigError(
      fmt::format("'{}': {} of {} layers have a sliding window; Ebb supports a "
                  "window in all layers or in none",
                  f.path(), num_windows, num_layers));
}

ModelConfig read_qwen2(const ConfigFields& f) {
  LlamaConfig config = read_llama_family(f);
  config.num_kv_heads = f.size("num_key_value_heads");
  config.qkv_bias = true;
  config.sliding_window = read_qwen_window(f, config.num_layers);
  return config;
}

ModelConfig read_qwen3(const ConfigFields& f) {
  f.size("head_dim");  // required: its default is not hidden_size / heads
  LlamaConfig config = read_llama_family(f);
  config.num_kv_heads = f.size("num_key_value_heads");
  config.qkv_bias = config.output_bias = f.flag("attention_bias", false);
  config.qk_norm = true;
  config.sliding_window = read_qwen_window(f, config.num_layers);
  return config;
}

struct Architecture {
  std::string_view name;
  ModelConfig (*read)(const ConfigFields&);
};

constexpr std::array<Architecture, 6> kArchitectures = {{{"GPT2LMHeadModel", read_gpt2},
                                                         {"LlamaForCausalLM", read_llama},
                                                         {"MistralForCausalLM", read_mistral},
                                                         {"Qwen2ForCausalLM", read_qwen2},
                                                         {"Qwen3ForCausalLM", read_qwen3},
                                                         {"BertForMaskedLM", read_bert}}};

const Architecture& architecture_in(const ConfigFields& fields) {
  const nlohmann::json* value = fields.find("architectures");
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    if (value != nullptr && *value == nlohmann::json::array({architecture.name})) {
      return architecture;
    }
    names += fmt::format("{}[\"{}\"]", names.empty() ? "" : ", ", architecture.name);
  }
  fields.refuse("architectures", names);
}

std::string config_path(const std::string& folder) { return folder + "/config.json"; }

}  // namespace

ModelConfig read_model_config(const std::string& folder) {
  const nlohmann::json json = read_json_file(config_path(folder));
  const ConfigFields fields(config_path(folder), json);
  const Architecture& architecture = architecture_in(fields);
  if (const auto quantised = fields.find_object("quantization_config")) {
    throw ConfigError(fmt::format(
        "'{}': the weights are quantised ({}), and Ebb does not train such weights: give the "
        "folder of the model before quantisation",
        fields.path(), quantised->find_text("quant_method").value_or("no quant_method")));
  }
  return architecture.read(fields);
}

}  // namespace ebb
