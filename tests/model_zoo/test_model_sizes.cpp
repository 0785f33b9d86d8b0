// Sizes in a config.json: any value gives a model whose parameters are counted correctly, or a
// ConfigError, before memory is allocated.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/sizes.h"
#include "tests/io/safetensors_files.h"
#include "tests/model_zoo/hf_folder.h"

namespace ebb::test {
namespace {

using Json = nlohmann::json;

constexpr const char* kSizes[] = {"vocab_size",
                                  "n_positions",
                                  "n_embd",
                                  "n_layer",
                                  "n_head",
                                  "n_inner",
                                  "hidden_size",
                                  "intermediate_size",
                                  "num_hidden_layers",
                                  "num_attention_heads",
                                  "num_key_value_heads",
                                  "head_dim",
                                  "type_vocab_size",
                                  "max_position_embeddings"};

class ModelSizes : public FolderTest, public testing::WithParamInterface<std::string> {
 protected:
  ModelConfig read(const Json& json) const {
    write("config.json", json_text(json));
    return read_model_config(folder_.string());
  }
  /// Creates the model. Returns its number of parameters; nullopt if it is refused.
  std::optional<uint64_t> create(const Json& json) const {
    try {
      const ModelConfig config = read(json);
      const auto model = create_model(config, {.batch_size = 1, .length = 1}, DType::BF16);
      uint64_t count = 0;
      for (ParameterId id = 0; id < model->parameters().size(); ++id) {
        count += static_cast<uint64_t>(model->parameters()[id].shape.num_elements());
      }
      EXPECT_EQ(count, num_parameters(config)) << json_text(json);
      EXPECT_LE(count, static_cast<uint64_t>(kMostParameters)) << json_text(json);
      return count;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  /// The fixture, without the list that has an entry for each layer.
  static Json fixture() {
    Json json = read_json_file(hf_folder(GetParam()) + "/config.json");
    json.erase("layer_types");
    return json;
  }

  const Json json_ = fixture();
};

TEST_P(ModelSizes, OfOneFieldNeverOverflow) {
  for (const char* name : kSizes) {
    if (!json_.contains(name)) continue;
    for (const int bits : {10, 20, 29, 30, 31, 32, 33, 39, 40, 41, 62}) {
      for (const int64_t more : {-1, 0, 1}) {
        Json json = json_;
        json[name] = (int64_t{1} << bits) + more;
        create(json);
      }
    }
  }
}

TEST_P(ModelSizes, OfAllFieldsNeverOverflow) {
  EXPECT_TRUE(create(json_).has_value());
  for (const int bits : {5, 10, 16, 21, 24, 29, 30, 31, 32, 40}) {
    Json json = json_;
    for (const char* name : kSizes) {
      const bool is_count = std::string(name).find("layer") != std::string::npos;
      if (json_.contains(name) && !is_count) json[name] = int64_t{1} << bits;
    }
    const bool is_possible = create(json).has_value();
    EXPECT_TRUE(!is_possible || bits < 24) << bits;
  }
}

TEST_P(ModelSizes, OfTooManyLayersAreRefused) {
  const char* const name = json_.contains("n_layer") ? "n_layer" : "num_hidden_layers";
  Json json = json_;
  for (const int64_t count : {10'001, 100'000, 1'000'000'000}) {
    json[name] = count;
    const auto error = error_of<ConfigError>(
        [&] { create_model(read(json), {.batch_size = 1, .length = 1}, DType::BF16); });
    EXPECT_SAYS(error, "the number of layers is 1");
    EXPECT_SAYS(error, "allowed are 1 to 10000");
  }
  json[name] = 1'000;
  EXPECT_TRUE(create(json).has_value());
}

INSTANTIATE_TEST_SUITE_P(All, ModelSizes, testing::ValuesIn(kHfCases),
                         [](const auto& info) { return info.param; });

TEST(ModelSizeArithmetic, StaysAtTheLargestNumber) {
  constexpr int64_t kMost = INT64_MAX;
  EXPECT_EQ((Count(3) * 4 + 5).value(), 17);
  EXPECT_EQ((Count(kMost) + 1).value(), kMost);
  EXPECT_EQ((Count(int64_t{1} << 40) * (int64_t{1} << 40)).value(), kMost);
  EXPECT_EQ((Count(kMost) * kMost + kMost).value(), kMost);
  EXPECT_EQ((Count(kMost) * 0).value(), 0);
}

}  // namespace
}  // namespace ebb::test
