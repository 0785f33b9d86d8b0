// config.json: the fields of all architectures, in old and new spellings, and unsupported values.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>

#include "device/errors.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/model_files.h"
#include "tests/io/safetensors_files.h"
#include "tests/model_zoo/hf_folder.h"

namespace ebb::test {
namespace {

using Json = nlohmann::json;

class HfConfig : public FolderTest {
 protected:
  template <class Config>
  Config read(const Json& json) const {
    write("config.json", json_text(json));
    return std::get<Config>(read_model_config(folder_.string()));
  }
};

Json config_of(const std::string& name) { return read_json_file(hf_folder(name) + "/config.json"); }

TEST_F(HfConfig, Gpt2) {
  Json json = config_of("gpt2");
  const auto config = read<Gpt2Config>(json);
  EXPECT_EQ(config.vocabulary, 37);
  EXPECT_EQ(config.max_positions, 16);
  EXPECT_EQ(config.channels, 12);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 3);
  EXPECT_EQ(config.inner_channels(), 20);
  EXPECT_EQ(config.layer_norm_epsilon, 1e-4f);
  json["n_inner"] = nullptr;
  EXPECT_EQ(read<Gpt2Config>(json).inner_channels(), 48);
}

TEST_F(HfConfig, OldAndNewSpellingsOfRotaryPositions) {
  const auto old = read<LlamaConfig>(config_of("llama"));
  EXPECT_EQ(old.rotary.theta, 50);
  EXPECT_EQ(old.rotary.scaling, RotaryScaling::Llama3);
  EXPECT_EQ(old.rotary.factor, 4);
  EXPECT_EQ(old.rotary.low_freq_factor, 1);
  EXPECT_EQ(old.rotary.high_freq_factor, 3);
  EXPECT_EQ(old.rotary.original_max_positions, 16);
  const auto now = read<LlamaConfig>(config_of("qwen3"));
  EXPECT_EQ(now.rotary.theta, 60);
  EXPECT_EQ(now.rotary.scaling, RotaryScaling::Yarn);
  EXPECT_EQ(now.rotary.beta_fast, 32);
  EXPECT_EQ(now.rotary.original_max_positions, 16);
  Json json = config_of("llama");
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};  // the oldest spelling
  EXPECT_EQ(read<LlamaConfig>(json).rotary.scaling, RotaryScaling::Linear);
  json.erase("rope_scaling");
  EXPECT_EQ(read<LlamaConfig>(json).rotary.scaling, RotaryScaling::None);
  json.erase("rope_theta");
  EXPECT_EQ(read<LlamaConfig>(json).rotary.theta, 10000);
}

TEST_F(HfConfig, TheModelsOfTheLlamaFamilyDiffer) {
  const auto llama = read<LlamaConfig>(config_of("llama"));
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias && !llama.tied_head);
  EXPECT_EQ(llama.head_dim, 6);
  EXPECT_EQ(llama.num_kv_heads, 2);
  const auto mistral = read<LlamaConfig>(config_of("mistral"));
  EXPECT_EQ(mistral.sliding_window, 5);
  Json windowless = config_of("mistral");
  windowless["sliding_window"] = nullptr;
  EXPECT_EQ(read<LlamaConfig>(windowless).sliding_window, std::nullopt);
  windowless.erase("sliding_window");  // the default of transformers
  EXPECT_EQ(read<LlamaConfig>(windowless).sliding_window, 4096);
  const auto qwen2 = read<LlamaConfig>(config_of("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && qwen2.tied_head);
  EXPECT_EQ(qwen2.head_dim, 6);  // hidden_size / heads
  const auto qwen3 = read<LlamaConfig>(config_of("qwen3"));
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  Json first = config_of("llama");  // Llama 1 and 2 have no such field
  first.erase("num_key_value_heads");
  EXPECT_EQ(read<LlamaConfig>(first).num_kv_heads, 4);
}

TEST_F(HfConfig, FieldsWithNeutralValuesAreAccepted) {
  Json gpt2 = config_of("gpt2");
  gpt2.update({{"hidden_size", 12}, {"num_hidden_layers", 2}, {"num_attention_heads", 3}});
  EXPECT_EQ(read<Gpt2Config>(gpt2).channels, 12);
  Json llama = config_of("llama");
  llama.update({{"is_causal", true}, {"logits_scaling", 1.0}, {"attn_logit_softcapping", nullptr}});
  EXPECT_EQ(read<LlamaConfig>(llama).channels, 20);
  llama.erase("model_type");
  EXPECT_EQ(read<LlamaConfig>(llama).channels, 20);
  Json mistral = config_of("mistral");
  mistral["layer_types"] = {"sliding_attention", "sliding_attention"};
  EXPECT_EQ(read<LlamaConfig>(mistral).sliding_window, 5);
}

/// The losses of transformers 5 are those of the complete files.
TEST_F(HfConfig, FieldsThatTransformersDoesNotNeedMayBeMissing) {
  for (const std::string& name : kHfCases) {
    const std::string whole = make_config_json(read_model_config(hf_folder(name)), DType::F32);
    for (const Json& architectures : {Json(nullptr), Json::array()}) {
      Json json = config_of(name);
      json["architectures"] = architectures;
      write("config.json", json_text(json));
      EXPECT_EQ(make_config_json(read_model_config(folder_.string()), DType::F32), whole) << name;
    }
  }
  for (const char* name : {"llama", "mistral", "qwen2", "qwen3"}) {
    Json json = config_of(name);
    json.erase("rms_norm_eps");
    EXPECT_EQ(read<LlamaConfig>(json).norm_epsilon, 1e-6f) << name;
  }
  Json bert = config_of("bert");
  bert["architectures"] = {"BertForPreTraining"};
  EXPECT_EQ(read<BertConfig>(bert).num_layers, 2);
  Json theta = config_of("qwen3");
  theta["rope_theta"] = nullptr;  // the one among the rope parameters counts
  EXPECT_EQ(read<LlamaConfig>(theta).rotary.theta, 60);
}

TEST_F(HfConfig, TheSizesOfGpt2MayHaveTheirOtherNames) {
  Json json = config_of("gpt2");
  for (const auto& [name, alias] :
       {std::pair{"n_embd", "hidden_size"}, std::pair{"n_layer", "num_hidden_layers"},
        std::pair{"n_head", "num_attention_heads"},
        std::pair{"n_positions", "max_position_embeddings"}}) {
    json[alias] = json[name];
    json.erase(name);
  }
  const auto config = read<Gpt2Config>(json);
  EXPECT_EQ(config.channels, 12);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 3);
  EXPECT_EQ(config.max_positions, 16);
}

TEST_F(HfConfig, QwenMayHaveAWindowInAllLayers) {
  Json json = config_of("qwen2");
  json.erase("layer_types");
  json["use_sliding_window"] = true;
  json["sliding_window"] = 7;
  json["max_window_layers"] = 0;
  EXPECT_EQ(read<LlamaConfig>(json).sliding_window, 7);
  json["max_window_layers"] = 28;
  EXPECT_EQ(read<LlamaConfig>(json).sliding_window, std::nullopt);
  json.erase("max_window_layers");  // the default is 28
  EXPECT_EQ(read<LlamaConfig>(json).sliding_window, std::nullopt);
  json["max_window_layers"] = 1;
  EXPECT_SAYS(error_of<ConfigError>([&] { read<LlamaConfig>(json); }), "1 of 2 layers");
  json["layer_types"] = {"sliding_attention", "sliding_attention"};
  EXPECT_EQ(read<LlamaConfig>(json).sliding_window, 7);
  json["sliding_window"] = nullptr;
  json.erase("layer_types");
  EXPECT_EQ(read<LlamaConfig>(json).sliding_window, std::nullopt);
}

struct Refusal {
  const char* name;
  const char* of;
  std::function<void(Json&)> change;
  const char* says;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

auto set(const char* name, Json value) {
  return [name, value](Json& json) { json[name] = value; };
}
auto rope(Json value) { return set("rope_parameters", std::move(value)); }
auto without(const char* name) {
  return [name](Json& json) { json.erase(name); };
}

const Refusal kRefusals[] = {
    {"Architecture", "gpt2", set("architectures", {"T5ForConditionalGeneration"}),
     "architectures is [\"T5ForConditionalGeneration\"], allowed is [\"GPT2LMHeadModel\"]"},
    {"TwoArchitectures", "gpt2", set("architectures", {"GPT2LMHeadModel", "GPT2Model"}),
     "architectures is"},
    {"NoArchitecture", "gpt2",
     [](Json& json) {
       json.erase("architectures");
       json.erase("model_type");
     },
     "architectures is missing"},
    {"UnknownModelType", "gpt2",
     [](Json& json) {
       json["architectures"] = Json::array();
       json["model_type"] = "mamba";
     },
     "architectures is [], allowed is [\"GPT2LMHeadModel\"]"},
    // transformers refuses these values, or cannot compute with them.
    {"ThetaIsNull", "llama", set("rope_theta", nullptr), "rope_theta is null"},
    {"ThetaOfTheRopeIsNull", "llama",
     set("rope_scaling", {{"rope_type", "default"}, {"rope_theta", nullptr}}),
     "rope_scaling.rope_theta is null, allowed is a number"},
    {"LlamaTooFewLayerTypes", "llama", set("layer_types", {"full_attention"}),
     "allowed is a list of 2 times"},
    {"LlamaNoLayerTypes", "llama", set("layer_types", Json::array()), "layer_types is []"},
    {"LlamaUnknownLayerType", "llama", set("layer_types", {"full_attention", "x"}),
     "layer_types is"},
    {"LlamaWindows", "llama", set("layer_types", {"sliding_attention", "full_attention"}),
     "allowed is a list of 2 times 'full_attention'"},
    {"Gpt2LayerTypes", "gpt2", set("layer_types", {"full_attention"}), "layer_types is"},
    {"BertLayerTypes", "bert", set("layer_types", {"full_attention"}), "layer_types is"},
    {"MistralWindowOfZero", "mistral", set("sliding_window", 0), "sliding_window is 0"},
    {"Gpt2TiedIsNull", "gpt2", set("tie_word_embeddings", nullptr),
     "tie_word_embeddings is null, allowed is true or false"},
    {"LlamaTiedIsNull", "llama", set("tie_word_embeddings", nullptr), "tie_word_embeddings is"},
    {"ActivationIsNull", "llama", set("hidden_act", nullptr), "hidden_act is null"},
    {"BiasIsNull", "llama", set("attention_bias", nullptr), "attention_bias is null"},
    {"EpsilonIsNull", "llama", set("rms_norm_eps", nullptr), "rms_norm_eps is null"},
    {"Gpt2EpsilonIsNull", "gpt2", set("layer_norm_epsilon", nullptr), "layer_norm_epsilon is null"},
    {"BertEpsilonIsNull", "bert", set("layer_norm_eps", nullptr), "layer_norm_eps is null"},
    {"WindowsAreNull", "qwen2", set("use_sliding_window", nullptr), "use_sliding_window is null"},
    {"Quantised", "llama", set("quantization_config", {{"quant_method", "gptq"}}),
     "quantised (gptq)"},
    {"Gpt2Activation", "gpt2", set("activation_function", "relu"),
     "activation_function is \"relu\", allowed is 'gelu_new'"},
    {"Gpt2UnscaledAttention", "gpt2", set("scale_attn_weights", false),
     "scale_attn_weights is false, allowed is only true"},
    {"Gpt2LayerScale", "gpt2", set("scale_attn_by_inverse_layer_idx", true),
     "scale_attn_by_inverse_layer_idx is true"},
    {"Gpt2Untied", "gpt2", set("tie_word_embeddings", false), "tie_word_embeddings is false"},
    {"Gpt2CrossAttention", "gpt2", set("add_cross_attention", true), "add_cross_attention is true"},
    {"NoSize", "gpt2", without("n_embd"), "has no n_embd"},
    {"SizeOfZero", "gpt2", set("n_head", 0), "n_head is 0, allowed is a whole number from 1"},
    {"NegativeSize", "gpt2", set("n_head", -3), "n_head is -3"},
    {"SizeIsAText", "gpt2", set("n_head", "3"), "n_head is \"3\""},
    {"SizeIsNoWholeNumber", "gpt2", set("n_head", 3.5), "n_head is 3.5"},
    {"HugeSize", "gpt2", set("vocab_size", 1e18), "vocab_size is 1e+18"},
    {"FlagIsANumber", "gpt2", set("scale_attn_weights", 1),
     "scale_attn_weights is 1, allowed is true or false"},
    {"LlamaActivation", "llama", set("hidden_act", "gelu"), "hidden_act is \"gelu\""},
    {"RopeType", "qwen3", rope({{"rope_type", "longrope"}, {"factor", 2}}),
     "rope_parameters.rope_type is \"longrope\""},
    {"RopeTypeOfOld", "llama", set("rope_scaling", {{"type", "dynamic"}, {"factor", 2}}),
     "rope_scaling.type is \"dynamic\""},
    {"RopeField", "qwen3", rope({{"rope_type", "linear"}, {"factor", 2}, {"short_factor", 1}}),
     "rope_parameters.short_factor is not known"},
    {"RopePerLayer", "qwen3", rope({{"full_attention", {{"rope_type", "default"}}}}),
     "full_attention is not known"},
    {"RopeFactorMissing", "qwen3", rope({{"rope_type", "linear"}}),
     "has no rope_parameters.factor"},
    {"PartialRotary", "qwen3", set("partial_rotary_factor", 0.5), "partial_rotary_factor is 0.5"},
    {"RopeTwice", "qwen3", set("rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}),
     "allowed is the same value as rope_parameters"},
    {"HeadsThatDoNotDivide", "qwen2", set("num_attention_heads", 5),
     "allowed is a divisor of hidden_size 24"},
    {"MistralWithoutKvHeads", "mistral", without("num_key_value_heads"),
     "has no num_key_value_heads"},
    {"Qwen3WithoutHeadDim", "qwen3", without("head_dim"), "has no head_dim"},
    {"Gpt2SecondName", "gpt2", set("num_hidden_layers", 3),
     "num_hidden_layers is 3, allowed is the same value as n_layer, which is 2"},
    {"Gpt2Bidirectional", "gpt2", set("is_causal", false), "is_causal is false"},
    {"NullIsBidirectional", "llama", set("is_causal", nullptr), "is_causal is null"},
    {"OtherModelType", "llama", set("model_type", "granite"),
     "model_type is \"granite\", allowed is 'llama'"},
    {"Multiplier", "llama", set("logits_scaling", 8), "logits_scaling is 8, allowed is 1"},
    {"SoftCap", "llama", set("attn_logit_softcapping", 50.0), "attn_logit_softcapping is 50.0"},
    {"LayersDiffer", "llama", set("per_layer_config", {{"1", {{"hidden_act", "relu"}}}}),
     "per_layer_config is"},
    {"MistralPartialWindow", "mistral", set("layer_types", {"sliding_attention", "full_attention"}),
     "1 of 2 layers"},
    {"MistralWindowOnlyInLayerTypes", "mistral",
     set("layer_types", {"full_attention", "full_attention"}),
     "0 of 2 layers have a sliding window according to layer_types"},
    {"QwenWindowOnlyInLayerTypes", "qwen2",
     set("layer_types", {"sliding_attention", "sliding_attention"}),
     "2 of 2 layers have a sliding window according to layer_types"},
    {"QwenUnknownLayerType", "qwen3", set("layer_types", {"full_attention", "linear_attention"}),
     "allowed is a list of 2 times 'full_attention' or 'sliding_attention'"},
    {"QwenTooFewLayerTypes", "qwen3", set("layer_types", {"full_attention"}), "layer_types is"},
    {"QwenLayerTypesIsAText", "qwen3", set("layer_types", "full_attention"), "layer_types is"},
    {"BertActivation", "bert", set("hidden_act", "gelu_new"),
     "hidden_act is \"gelu_new\", allowed is 'gelu'"},
    {"BertPositions", "bert", set("position_embedding_type", "relative_key"),
     "position_embedding_type is \"relative_key\""},
    {"BertDecoder", "bert", set("is_decoder", true), "is_decoder is true"},
};

class UnsupportedHfConfig : public FolderTest, public testing::WithParamInterface<Refusal> {};

TEST_P(UnsupportedHfConfig, IsRejectedWithFileFieldAndValue) {
  Json json = config_of(GetParam().of);
  GetParam().change(json);
  const std::string file = write("config.json", json_text(json));
  const auto error = error_of<ConfigError>([&] { read_model_config(folder_.string()); });
  EXPECT_SAYS(error, GetParam().says);
  EXPECT_SAYS(error, file);
}

INSTANTIATE_TEST_SUITE_P(All, UnsupportedHfConfig, testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(HfConfig, AMissingOrInvalidFileIsAnError) {
  EXPECT_THROW(read_model_config(folder_.string()), IoError);
  write("config.json", "{\"a\": }");
  EXPECT_EQ(error_of<FormatError>([&] { read_model_config(folder_.string()); }).offset, 6u);
  const auto says = [&](const std::string& content) {
    write("config.json", content);
    return std::string(error_of<FormatError>([&] { read_model_config(folder_.string()); }).what());
  };
  EXPECT_SAYS(says("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 700\n"),
              "a Git LFS pointer, not the file itself of 700 bytes");
  EXPECT_SAYS(says("<html>Sign in</html>"), "not JSON, but a web page or XML");
  EXPECT_SAYS(says(""), "not JSON, but empty");
  std::filesystem::remove(path("config.json"));
  std::filesystem::create_symlink("../../blobs/7", path("config.json"));
  EXPECT_SAYS(error_of<ConfigError>([&] { read_model_config(folder_.string()); }),
              "is a link to '../../blobs/7', which does not exist");
}

TEST_F(HfConfig, IsCopiedWithTheNewTypeAndTheTokenizer) {
  write("from/config.json", R"({"z": 1, "dtype": "float32", "a": {"b": [1.5, null]}})");
  write("from/tokenizer.json", "tokens");
  write("from/generation_config.json", "{}");
  write("from/optimizer.pt", "not copied");
  write("from/additional_chat_templates/x.jinja", "x");
  std::filesystem::create_directory(path("to"));
  write_model_files(path("from"), Gpt2Config{}, DType::BF16, path("to"));
  EXPECT_EQ(parse_json(content_of(path("to/config.json"))),
            parse_json(R"({"z": 1, "dtype": "bfloat16", "a": {"b": [1.5, null]}})"));
  EXPECT_EQ(content_of(path("to/tokenizer.json")), "tokens");
  EXPECT_EQ(content_of(path("to/generation_config.json")), "{}");
  EXPECT_EQ(content_of(path("to/additional_chat_templates/x.jinja")), "x");
  EXPECT_FALSE(std::filesystem::exists(path("to/optimizer.pt")));
}

}  // namespace
}  // namespace ebb::test
