// Rotary positions: for each form of the rope fields in config.json, the frequencies equal those of
// transformers (tests/fixtures/make_rope_configs.py). Forms that Ebb does not compute are refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_text.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/rotary.h"
#include "tests/io/safetensors_files.h"
#include "tests/model_zoo/reference_run.h"

namespace ebb::test {
namespace {

using Json = nlohmann::json;

class HfRope : public FolderTest {
 protected:
  /// Reads the configuration of the fixture with additional fields.
  LlamaConfig read(const Json& fields) const {
    Json json = fixture_.at("base");
    json.update(fields);
    write("config.json", json_text(json));
    return std::get<LlamaConfig>(read_model_config(folder_.string()));
  }
  void expect_refused(const Json& fields, const char* says) const {
    EXPECT_SAYS(error_of<ConfigError>([&] { read(fields); }), says);
  }

  Json fixture_ = read_fixture("rope_configs");
};

TEST_F(HfRope, FrequenciesEqualThoseOfTransformers) {
  EXPECT_EQ(fixture_.at("cases").size(), 39u);
  for (const Json& expected : fixture_.at("cases")) {
    const std::string name = expected.at("name");
    const LlamaConfig config = read(expected.at("fields"));
    const std::vector<double> own = rotary_frequencies(config.rotary, config.head_dim);
    const std::vector<double> want = expected.at("frequencies");
    ASSERT_EQ(own.size(), want.size()) << name;
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_NEAR(own[i] / want[i], 1, 1e-12) << name << ", pair " << i;
    }
    EXPECT_NEAR(rotary_factor(config.rotary), expected.at("factor"), 1e-14) << name;
  }
}

/// A written config.json gives the same numbers, also to versions that read rope_scaling.
TEST_F(HfRope, WrittenFieldsGiveTheSameFrequencies) {
  for (const Json& expected : fixture_.at("cases")) {
    const LlamaConfig config = read(expected.at("fields"));
    write("config.json", make_config_json(config, DType::F32));
    const auto again = std::get<LlamaConfig>(read_model_config(folder_.string()));
    EXPECT_EQ(rotary_frequencies(again.rotary, again.head_dim),
              rotary_frequencies(config.rotary, config.head_dim))
        << expected.at("name");
    EXPECT_EQ(rotary_factor(again.rotary), rotary_factor(config.rotary)) << expected.at("name");
  }
}

TEST_F(HfRope, NumbersOutOfRangeAreRefusedByNameWithTheRange) {
  for (const double theta : {0.0, -1.0, 1e-320, 1e300}) {
    expect_refused({{"rope_theta", theta}}, "allowed is a number from 0.001 to 1000000000000000");
  }
  for (const double factor : {0.0, 1e-320, 1e300}) {
    expect_refused({{"rope_parameters", {{"rope_type", "linear"}, {"factor", factor}}}},
                   "allowed is a number from 1e-06 to 1000000");
  }
  expect_refused({{"original_max_position_embeddings", 0.5},
                  {"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}}}},
                 "original_max_position_embeddings is 0.5, allowed is a number from 1 to 21474");
  for (const double epsilon : {0.0, 1e-40, 2.0, 1e300}) {
    expect_refused({{"rms_norm_eps", epsilon}}, "allowed is a number from 1e-30 to 1");
  }
  expect_refused({{"vocab_size", int64_t{1} << 40}},
                 "vocab_size is 1099511627776, allowed is a whole number from 1 to 2147483647");
  expect_refused({{"max_position_embeddings", int64_t{1} << 31}}, "to 2147483647");
}

/// Transformers has these scalings, but Ebb does not.
TEST_F(HfRope, OtherScalingsAreRefused) {
  for (const char* type : {"dynamic", "longrope", "proportional", "axial", "mrope"}) {
    const std::string says = std::string("rope_type is \"") + type + "\", allowed is 'default'";
    expect_refused({{"rope_parameters", {{"rope_type", type}, {"factor", 2.0}}}}, says.c_str());
  }
  expect_refused({{"rope_scaling", {{"type", "su"}}}}, "rope_scaling.type is \"su\"");
}

TEST_F(HfRope, FieldsThatChangeTheFrequenciesOtherwiseAreRefused) {
  expect_refused({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5");
  expect_refused({{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}},
                 "rope_parameters.partial_rotary_factor is 0.5");
  expect_refused({{"layer_types", {"full_attention"}},
                  {"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}},
                 "full_attention is not known");
  expect_refused({{"original_max_position_embeddings", "64"},
                  {"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}}}},
                 "original_max_position_embeddings is \"64\", allowed is a number");
  expect_refused({{"rope_parameters", {{"rope_type", "llama3"}, {"factor", 8.0}}}},
                 "has no rope_parameters.low_freq_factor");
}

}  // namespace
}  // namespace ebb::test
