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

/// The size of a field that has two names. Refuses two different values.
int64_t size_of_either(const ConfigFields& f, std::string_view name, std::string_view alias) {
  if (!f.has(name) && f.has(alias)) return f.size(alias);
  const int64_t size = f.size(name);
  if (f.has(alias) && f.size(alias) != size) {
    f.refuse(alias, fmt::format("the same value as {}, which is {}", name, size));
  }
  return size;
}

/// The number of layers that have a sliding window according to `layer_types`; nullopt if there is
/// no such field.
std::optional<int64_t> count_windows(const ConfigFields& f, int64_t num_layers) {
  const nlohmann::json* types = f.find("layer_types");
  if (types == nullptr) return std::nullopt;
  const int64_t num_windows = std::count(types->begin(), types->end(), "sliding_attention");
  const int64_t num_others = std::count(types->begin(), types->end(), "full_attention");
  if (!types->is_array() || num_windows + num_others != std::ssize(*types) ||
      std::ssize(*types) != num_layers) {
    f.refuse("layer_types",
             fmt::format("a list of {} times 'full_attention' or 'sliding_attention'", num_layers));
  }
  return num_windows;
}

/// Refuses windows in a model whose architecture has none.
void require_full_attention(const ConfigFields& f, int64_t num_layers) {
  if (count_windows(f, num_layers).value_or(0) == 0) return;
  f.refuse("layer_types", fmt::format("a list of {} times 'full_attention'", num_layers));
}

ModelConfig read_gpt2(const ConfigFields& f) {
  // Both names mean the same formula.
  f.require_text("activation_function", {"gelu_new", "gelu_pytorch_tanh"}, "gelu_new");
  f.require_flag("scale_attn_weights", true);
  f.require_flag("scale_attn_by_inverse_layer_idx", false);
  f.require_flag("add_cross_attention", false);
  f.require_flag("tie_word_embeddings", true);
  const Gpt2Config config = {
      .vocabulary = f.size("vocab_size"),
      .max_positions = size_of_either(f, "n_positions", "max_position_embeddings"),
      .channels = size_of_either(f, "n_embd", "hidden_size"),
      .num_layers = size_of_either(f, "n_layer", "num_hidden_layers"),
      .num_heads = size_of_either(f, "n_head", "num_attention_heads"),
      .mlp_channels = f.find_size("n_inner"),
      .layer_norm_epsilon = static_cast<float>(f.number("layer_norm_epsilon", 1e-5, kNormEpsilon))};
  require_full_attention(f, config.num_layers);
  return config;
}

ModelConfig read_bert(const ConfigFields& f) {
  f.require_text("hidden_act", {"gelu"}, "gelu");
  // transformers 5 has no such field, so that it also accepts null.
  if (f.has("position_embedding_type")) f.require_text("position_embedding_type", {"absolute"});
  f.require_flag("is_decoder", false);
  f.require_flag("add_cross_attention", false);
  f.require_flag("tie_word_embeddings", true);
  require_full_attention(f, f.size("num_hidden_layers"));
  return BertConfig{
      .vocabulary = f.size("vocab_size"),
      .max_positions = f.size("max_position_embeddings"),
      .num_token_types = f.size("type_vocab_size"),
      .channels = f.size("hidden_size"),
      .num_layers = f.size("num_hidden_layers"),
      .num_heads = f.size("num_attention_heads"),
      .mlp_channels = f.size("intermediate_size"),
      .norm_epsilon = static_cast<float>(f.number("layer_norm_eps", 1e-12, kNormEpsilon))};
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
  config.norm_epsilon = static_cast<float>(f.number("rms_norm_eps", 1e-6, kNormEpsilon));
  config.tied_head = f.flag("tie_word_embeddings", false);
  config.rotary = read_rotary(f, config.max_positions);
  return config;
}

ModelConfig read_llama(const ConfigFields& f) {
  LlamaConfig config = read_llama_family(f);
  require_full_attention(f, config.num_layers);
  config.num_kv_heads = f.find_size("num_key_value_heads").value_or(config.num_heads);
  config.qkv_bias = config.output_bias = f.flag("attention_bias", false);
  config.mlp_bias = f.flag("mlp_bias", false);
  return config;
}

/// Throws ConfigError if only some layers have a window, or if `layer_types` contradicts the other
/// fields.
void check_windows(const ConfigFields& f, bool has_window, int64_t num_windows,
                   int64_t num_layers) {
  if (num_windows == (has_window ? num_layers : 0)) return;
  throw ConfigError(fmt::format(
      "'{}': {} of {} layers have a sliding window{}; Ebb supports a window in all layers or in "
      "none",
      f.path(), num_windows, num_layers,
      num_windows == num_layers || num_windows == 0
          ? " according to layer_types, but the other fields say otherwise"
          : ""));
}

ModelConfig read_mistral(const ConfigFields& f) {
  LlamaConfig config = read_llama_family(f);
  config.num_kv_heads = f.size("num_key_value_heads");
  if (!f.is_null("sliding_window")) {
    config.sliding_window = f.find_size("sliding_window").value_or(4096);
  }
  if (const auto num_windows = count_windows(f, config.num_layers)) {
    check_windows(f, config.sliding_window.has_value(), *num_windows, config.num_layers);
  }
  return config;
}

/// Reads the sliding window of Qwen, which all layers or no layers have.
std::optional<int64_t> read_qwen_window(const ConfigFields& f, int64_t num_layers) {
  const bool use_window = f.flag("use_sliding_window", false) && !f.is_null("sliding_window");
  const int64_t from_layer = f.find_size("max_window_layers", 0).value_or(28);
  const int64_t num_windows =
      count_windows(f, num_layers)
          .value_or(use_window ? num_layers - std::min(num_layers, from_layer) : 0);
  const bool has_window = use_window && num_windows > 0;
  check_windows(f, has_window, num_windows, num_layers);
  if (!has_window) return std::nullopt;
  return f.size("sliding_window");
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
  std::string_view base_name;   ///< of the base model, whose folders have no head
  std::string_view other_name;  ///< of a class that also has this head; empty if there is none
  std::string_view model_type;
  bool is_causal;
  ModelConfig (*read)(const ConfigFields&);
};

constexpr std::array<Architecture, 6> kArchitectures = {
    {{"GPT2LMHeadModel", "GPT2Model", "", "gpt2", true, read_gpt2},
     {"LlamaForCausalLM", "LlamaModel", "", "llama", true, read_llama},
     {"MistralForCausalLM", "MistralModel", "", "mistral", true, read_mistral},
     {"Qwen2ForCausalLM", "Qwen2Model", "", "qwen2", true, read_qwen2},
     {"Qwen3ForCausalLM", "Qwen3Model", "", "qwen3", true, read_qwen3},
     // The second head of BertForPreTraining is ignored, as transformers does.
     {"BertForMaskedLM", "BertModel", "BertForPreTraining", "bert", false, read_bert}}};

// Fields of other architectures that change the computation. The list is not complete, because an
// author may invent fields; these are the ones that models derived from Llama use.
constexpr std::array<std::string_view, 5> kMultipliers = {"attention_multiplier",
                                                          "embedding_multiplier", "logit_scale",
                                                          "logits_scaling", "residual_multiplier"};
constexpr std::array<std::string_view, 7> kForeignFields = {
    "attention_chunk_size", "attn_logit_softcapping", "final_logit_softcapping", "num_experts",
    "num_local_experts",    "per_layer_config",       "query_pre_attn_scalar"};

/// Refuses fields that say that the model computes something else than its architecture.
void check_common(const ConfigFields& fields, const Architecture& architecture) {
  fields.require_text("model_type", {architecture.model_type}, architecture.model_type);
  if (architecture.is_causal) fields.require_flag("is_causal", true);
  for (const std::string_view name : kMultipliers) {
    if (fields.find_number(name).value_or(1) != 1) fields.refuse(name, "1");
  }
  for (const std::string_view name : kForeignFields) {
    if (fields.has(name)) {
      fields.refuse(name, fmt::format("null: {} has no such field", architecture.name));
    }
  }
}

/// Whether this is a value of `architectures` for the architecture.
bool names(const nlohmann::json& value, const Architecture& architecture) {
  return std::ranges::any_of(
      std::array{architecture.name, architecture.base_name, architecture.other_name},
      [&](std::string_view name) {
        return !name.empty() && value == nlohmann::json::array({name});
      });
}

/// Without `architectures`, the field `model_type` selects the architecture, as in the class
/// AutoModelForCausalLM or AutoModelForMaskedLM of transformers.
const Architecture& architecture_in(const ConfigFields& fields) {
  const nlohmann::json* value = fields.find("architectures");
  if (value != nullptr && value->is_array() && value->empty()) value = nullptr;
  const nlohmann::json* type = fields.find("model_type");
  std::string allowed;
  for (const Architecture& architecture : kArchitectures) {
    const bool is_type = type != nullptr && *type == architecture.model_type;
    if (value == nullptr ? is_type : names(*value, architecture)) return architecture;
    allowed += fmt::format("{}[\"{}\"]", allowed.empty() ? "" : ", ", architecture.name);
  }
  fields.refuse("architectures", allowed);
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
  check_common(fields, architecture);
  return architecture.read(fields);
}

bool is_base_model(const std::string& folder) {
  const nlohmann::json json = read_json_file(config_path(folder));
  const ConfigFields fields(config_path(folder), json);
  const nlohmann::json* value = fields.find("architectures");
  return value != nullptr && std::ranges::any_of(kArchitectures, [&](const Architecture& known) {
           return *value == nlohmann::json::array({known.base_name});
         });
}

double read_config_dropout(const std::string& folder) {
  const nlohmann::json json = read_json_file(config_path(folder));
  const ConfigFields fields(config_path(folder), json);
  double largest = 0;
  for (const char* name : {"attention_dropout", "attention_probs_dropout_prob", "attn_pdrop",
                           "embd_pdrop", "hidden_dropout_prob", "resid_pdrop"}) {
    largest = std::max(largest, fields.find_number(name).value_or(0));
  }
  return largest;
}

}  // namespace ebb
