// Names of tensors as transformers resolves them: folders of the base model, tied weights that are
// stored under one of their names, and names that other tools write.
#include <gtest/gtest.h>

#include <filesystem>

#include "device/errors.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "tests/model_zoo/hf_tensors.h"

namespace ebb::test {
namespace {

std::string without(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

class HfNames : public HfTensors {
 protected:
  /// The loss of the first batch with the present tensors and the fixture's config.json.
  double loss(const std::string& name) const {
    std::filesystem::copy_file(hf_folder(name) + "/config.json", path("config.json"),
                               std::filesystem::copy_options::overwrite_existing);
    write_tensors();
    const HfLosses data = read_hf_losses(name);
    return LoadedModel(folder_.string(), data.batch, data.length, DType::F32).loss(data.batches[0]);
  }
  const char* missing_says(const char* text) {
    message_ = error_of<ConfigError>([&] { match(); }).what();
    return std::strstr(message_.c_str(), text);
  }

  std::string message_;
};

#define EXPECT_MISSING_SAYS(text) EXPECT_NE(missing_says(text), nullptr) << message_

/// Tensors of the base model without its prefix. The head keeps its name, or is tied.
TEST_F(HfNames, ThePrefixOfTheBaseModelMayBeMissing) {
  for (const auto& [name, prefix] :
       {std::pair{"gpt2", "transformer."}, std::pair{"llama", "model."},
        std::pair{"mistral", "model."}, std::pair{"qwen2", "model."}, std::pair{"qwen3", "model."},
        std::pair{"bert", "bert."}}) {
    use(name);
    const double expected = loss(name);
    rename_all([&](const std::string& n) { return without(prefix, n); });
    EXPECT_EQ(loss(name), expected) << name;
  }
}

TEST_F(HfNames, ThePrefixMayBeMissingInSomeNames) {
  use("qwen2");
  rename("model.norm.weight", "norm.weight");
  EXPECT_NO_THROW(match());
  weights_.copy("norm.weight", "model.norm.weight");  // one of the two would be ignored
  EXPECT_SAYS(error_of<FormatError>([&] { match(); }), "tensor 'norm.weight'");
}

TEST_F(HfNames, ATiedWeightMayBeStoredUnderEitherName) {
  for (const auto& [name, original, copy] :
       {std::tuple{"gpt2", "transformer.wte.weight", "lm_head.weight"},
        std::tuple{"qwen2", "model.embed_tokens.weight", "lm_head.weight"},
        std::tuple{"bert", "bert.embeddings.word_embeddings.weight",
                   "cls.predictions.decoder.weight"},
        std::tuple{"bert", "cls.predictions.bias", "cls.predictions.decoder.bias"}}) {
    use(name);
    const double expected = loss(name);
    rename(original, copy);
    EXPECT_EQ(loss(name), expected) << name << ", " << copy;
  }
}

TEST_F(HfNames, AnUntiedHeadIsNotTheEmbedding) {
  use("llama");
  remove("model.embed_tokens.weight");
  EXPECT_MISSING_SAYS("has no tensor 'model.embed_tokens.weight'");
  use("llama");
  remove("lm_head.weight");
  EXPECT_MISSING_SAYS("has no tensor 'lm_head.weight'");
  EXPECT_MISSING_SAYS("the folder was saved from the base model without its head");
  EXPECT_MISSING_SAYS("tie_word_embeddings");
}

TEST_F(HfNames, ABaseBertWithoutItsHeadIsRejected) {
  use("bert");
  for (const char* name :
       {"cls.predictions.bias", "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias", "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias"}) {
    remove(name);
  }
  rename_all([](const std::string& n) { return without("bert.", n); });
  weights_.add({"pooler.dense.bias", StoredType::F32, {1}}, std::string(4, 0));
  EXPECT_MISSING_SAYS("has no tensor 'cls.predictions.transform.dense.weight' ([12, 12])");
  EXPECT_MISSING_SAYS("(and 4 more)");
  EXPECT_MISSING_SAYS("saved from the base model without its head");
}

/// Old names, the prefix and a copy at once.
TEST_F(HfNames, TheDifferencesOfBertMayBeCombined) {
  use("bert");
  const double expected = loss("bert");
  rename("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight");
  rename("bert.embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma");
  rename("bert.embeddings.LayerNorm.bias", "embeddings.LayerNorm.beta");
  EXPECT_EQ(loss("bert"), expected);
}

TEST_F(HfNames, PrefixesOfWrappersAreNamed) {
  for (const std::string prefix : {"module.", "_orig_mod.", "module._orig_mod."}) {
    use("mistral");
    rename_all([&](const std::string& name) { return prefix + name; });
    EXPECT_MISSING_SAYS(("it has '" + prefix + "model.embed_tokens.weight'").c_str());
    EXPECT_MISSING_SAYS("torch.compile ('_orig_mod.') or DistributedDataParallel ('module.')");
    use("gpt2");
    rename_all([&](const std::string& name) { return prefix + without("transformer.", name); });
    EXPECT_MISSING_SAYS(("it has '" + prefix + "wte.weight'").c_str());
  }
}

TEST_F(HfNames, APrefixThatIsThereTwiceIsNamed) {
  for (const auto& [name, prefix] : {std::pair{"mistral", "model."}, std::pair{"bert", "bert."},
                                     std::pair{"gpt2", "transformer."}}) {
    use(name);
    rename_all([&, p = std::string(prefix)](const std::string& n) {
      return n.starts_with(p) ? p + n : n;
    });
    EXPECT_MISSING_SAYS((std::string("it has '") + prefix + prefix).c_str());
    EXPECT_MISSING_SAYS((std::string("has the prefix '") + prefix + "' before").c_str());
    EXPECT_FALSE(missing_says("torch.compile"));
  }
}

TEST_F(HfNames, APrefixOfSomeTensorsIsNamed) {
  use("mistral");
  rename("model.norm.weight", "module.model.norm.weight");
  EXPECT_MISSING_SAYS("it has 'module.model.norm.weight': torch.compile");
  remove("model.layers.0.mlp.up_proj.weight");  // missing without a reason, and listed before
  EXPECT_MISSING_SAYS("has no tensor 'model.layers.0.mlp.up_proj.weight'");
  EXPECT_MISSING_SAYS("it has 'module.model.norm.weight': torch.compile");
  use("llama");
  rename("lm_head.weight", "model.lm_head.weight");
  EXPECT_MISSING_SAYS("it has 'model.lm_head.weight': no tensor of the model has the prefix");
  use("qwen2");
  weights_.copy("model.norm.weight", "module.model.norm.weight");
  EXPECT_SAYS(error_of<FormatError>([&] { match(); }),
              "the folder also has 'model.norm.weight', which differs only in its prefix");
}

TEST_F(HfNames, FusedProjectionsOfOtherFormatsAreNamed) {
  use("mistral");
  remove("model.layers.0.self_attn.q_proj.weight");
  remove("model.layers.0.self_attn.k_proj.weight");
  rename("model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_MISSING_SAYS("has no tensor 'model.layers.0.self_attn.q_proj.weight'");
  EXPECT_MISSING_SAYS("(and 2 more)");
  EXPECT_MISSING_SAYS(
      "does not know the folder's tensor 'model.layers.0.self_attn.qkv_proj.weight'");
}

TEST_F(HfNames, TheArchitectureMayBeThatOfTheBaseModel) {
  for (const auto& [name, architecture] :
       {std::pair{"gpt2", "GPT2Model"}, std::pair{"llama", "LlamaModel"},
        std::pair{"mistral", "MistralModel"}, std::pair{"qwen2", "Qwen2Model"},
        std::pair{"qwen3", "Qwen3Model"}, std::pair{"bert", "BertModel"}}) {
    nlohmann::json json = read_json_file(hf_folder(name) + "/config.json");
    json["architectures"] = {architecture};
    write("config.json", json_text(json));
    EXPECT_EQ(make_config_json(read_model_config(folder_.string()), DType::F32),
              make_config_json(read_model_config(hf_folder(name)), DType::F32));
  }
}

/// The values are those of fp32, so the loss is the same.
TEST_F(HfNames, WeightsInFp64AreConverted) {
  use("gpt2");
  const double expected = loss("gpt2");
  for (size_t i = 0; i < weights_.specs.size(); ++i) {
    std::vector<float> values(weights_.data[i].size() / sizeof(float));
    std::memcpy(values.data(), weights_.data[i].data(), weights_.data[i].size());
    weights_.data[i] = bytes_of(std::vector<double>(values.begin(), values.end()));
    weights_.specs[i].type = StoredType::F64;
  }
  EXPECT_EQ(loss("gpt2"), expected);
}

}  // namespace
}  // namespace ebb::test
