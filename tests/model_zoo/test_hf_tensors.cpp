// Names and shapes of tensors: older names that are read, and invalid tensors that are rejected.
#include <gtest/gtest.h>

#include "device/errors.h"
#include "tests/model_zoo/hf_tensors.h"

namespace ebb::test {
namespace {

TEST_F(HfTensors, TheFirstGpt2HasNoPrefixButBuffersAndATiedHead) {
  use("gpt2");
  for (TensorSpec& spec : weights_.specs) spec.name = spec.name.substr(12);  // "transformer."
  weights_.add({"h.0.attn.bias", StoredType::U8, {1, 1, 2, 2}}, "\1\0\1\1");
  weights_.add({"h.0.attn.masked_bias", StoredType::F32, {}}, "\0\0\0\0");
  weights_.data.back().resize(4);
  weights_.data[weights_.specs.size() - 2] = std::string("\1\0\1\1", 4);
  weights_.copy("wte.weight", "lm_head.weight");
  const std::vector<MappedTensor> tensors = match();
  EXPECT_EQ(tensors[0].name, "wte.weight");  // written under the same name
}

TEST_F(HfTensors, OlderBertHasOtherNamesAndHeads) {
  use("bert");
  for (TensorSpec& spec : weights_.specs) {
    for (const auto& [now, before] : {std::pair{"LayerNorm.weight", "LayerNorm.gamma"},
                                      std::pair{"LayerNorm.bias", "LayerNorm.beta"}}) {
      const size_t at = spec.name.find(now);
      if (at != std::string::npos) spec.name.replace(at, std::string::npos, before);
    }
  }
  weights_.add({"bert.embeddings.position_ids", StoredType::I64, {1, 1}}, std::string(8, 0));
  weights_.add({"bert.pooler.dense.bias", StoredType::F32, {1}}, std::string(4, 0));
  weights_.add({"cls.seq_relationship.bias", StoredType::F32, {1}}, std::string(4, 0));
  weights_.copy("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight");
  weights_.copy("cls.predictions.bias", "cls.predictions.decoder.bias");
  EXPECT_NO_THROW(match());
}

TEST_F(HfTensors, ADifferentCopyOfATiedWeightIsRejected) {
  use("qwen2");
  weights_.copy("model.embed_tokens.weight", "lm_head.weight");
  EXPECT_NO_THROW(match());
  weights_.data.back()[1001] ^= 1;
  const auto error = error_of<FormatError>([&] { match(); });
  EXPECT_SAYS(error, "'lm_head.weight' differs from 'model.embed_tokens.weight'");
}

TEST_F(HfTensors, AnUnknownTensorIsRejectedWithFileAndOffset) {
  use("mistral");
  weights_.add({"model.layers.2.input_layernorm.weight", StoredType::F16, {20}},
               std::string(40, 0));
  const auto error = error_of<FormatError>([&] { match(); });
  EXPECT_SAYS(error, "'model.layers.2.input_layernorm.weight' (F16 [20]) is no part of the model");
  EXPECT_EQ(error.path, path("model.safetensors"));
  EXPECT_GT(error.offset, 100u);
}

TEST_F(HfTensors, AWrongShapeIsRejected) {
  use("gpt2");
  TensorSpec& spec = weights_.specs[weights_.find("transformer.h.1.mlp.c_fc.weight")];
  EXPECT_EQ(spec.shape, (std::vector<uint64_t>{12, 20}));  // transposed
  spec.shape = {20, 12};
  EXPECT_SAYS(error_of<FormatError>([&] { match(); }),
              "'transformer.h.1.mlp.c_fc.weight' is F32 [20, 12], but the model that config.json "
              "describes has [12, 20]");
}

TEST_F(HfTensors, ATypeThatIsNotForWeightsIsRejected) {
  use("qwen2");
  weights_.specs[weights_.find("model.norm.weight")].type = StoredType::I32;
  EXPECT_SAYS(error_of<FormatError>([&] { match(); }), "'model.norm.weight' is I32 [24]");
}

/// The tensor is larger than the strips in which tensors are read and transposed.
TEST_F(HfTensors, LargeTensorsAreReadInStrips) {
  constexpr uint64_t kRows = 3001, kColumns = 4003;
  for (const bool transposed : {false, true}) {
    const std::vector<MappedTensor> tensors = {{.parameter = 5,
                                                .first_row = 7,
                                                .num_rows = kRows,
                                                .num_columns = kColumns,
                                                .is_vector = false,
                                                .transposed = transposed,
                                                .name = "w"}};
    const auto value = [](uint64_t row, uint64_t column) {
      return static_cast<float>(row * 5003 + column);  // exact, because it is below 2^24
    };
    SafetensorsFolderWriter writer(folder_.string(), stored_tensors(tensors, StoredType::F32));
    size_t largest = 0;
    store_weights(
        tensors,
        [&](ParameterId id, uint64_t first, std::span<float> values) {
          EXPECT_EQ(id, 5u);
          largest = std::max(largest, values.size());
          for (uint64_t i = 0; i < values.size(); ++i) {
            const uint64_t element = first + i - 7 * kColumns;
            values[i] = value(element / kColumns, element % kColumns);
          }
        },
        writer);
    writer.finish();
    EXPECT_LE(largest * sizeof(float), size_t{16} << 20);
    const SafetensorsFolder folder(folder_.string());
    std::vector<float> stored(kRows * kColumns);
    folder.tensors()[0].read_floats(0, stored);
    for (uint64_t i = 0; i < stored.size(); ++i) {
      const uint64_t row = transposed ? i % kRows : i / kColumns;
      const uint64_t column = transposed ? i / kRows : i % kColumns;
      ASSERT_EQ(stored[i], value(row, column)) << i;
    }
    uint64_t seen = 0, requested = 0;
    load_weights(
        folder, tensors,
        [&](ParameterId, uint64_t first, std::span<const float> values) {
          EXPECT_EQ(first, 7 * kColumns + seen);
          for (uint64_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(values[i], value((seen + i) / kColumns, (seen + i) % kColumns));
          }
          seen += values.size();
        },
        [&](uint64_t done, uint64_t total) {
          EXPECT_EQ(total, kRows * kColumns);
          requested = done;
        });
    EXPECT_EQ(seen, kRows * kColumns);
    EXPECT_EQ(requested, seen);
  }
}

}  // namespace
}  // namespace ebb::test
