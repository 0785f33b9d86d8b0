// Models that transformers saved. The losses equal those of transformers, and loaded weights are
// written with the same bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "device/errors.h"
#include "model_zoo/hugging_face_config.h"
#include "tests/io/safetensors_files.h"
#include "tests/model_zoo/hf_folder.h"

namespace ebb::test {
namespace {

class HfFolder : public FolderTest, public testing::WithParamInterface<std::string> {
 protected:
  /// The largest relative deviation of the losses. `change` is applied to the model before.
  template <class Change>
  double deviation(const Change& change) const {
    const HfLosses expected = read_hf_losses(GetParam());
    LoadedModel model(hf_folder(GetParam()), expected.batch, expected.length, DType::F32);
    change(model);
    double largest = 0;
    for (size_t i = 0; i < expected.batches.size(); ++i) {
      const double loss = model.loss(expected.batches[i]);
      largest = std::fmax(largest, std::abs(loss / expected.losses[i] - 1));
    }
    return largest;
  }
};

TEST_P(HfFolder, LossesEqualThoseOfTransformers) {
  EXPECT_LT(deviation([](LoadedModel&) {}), 1e-5);
}

/// The test swaps the halves of the first matrix with an even number of rows.
TEST_P(HfFolder, SwappedRowsAreFound) {
  EXPECT_GT(deviation([](LoadedModel& loaded) {
              const Parameters& all = loaded.model().parameters();
              for (ParameterId id = 0; id < all.size(); ++id) {
                if (all[id].shape.rank() != 2 || all[id].shape[0] % 2 != 0) continue;
                std::vector<float> values = loaded.trainer().read_parameter(all[id].name);
                std::rotate(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
                return loaded.trainer().write_parameter(all[id].name, values);
              }
            }),
            1e-3);
}

StoredType type_of(const SafetensorsFolder& folder) { return folder.tensors()[0].stored->type; }

TEST_P(HfFolder, LoadedWeightsAreWrittenWithTheSameBytes) {
  const SafetensorsFolder original(hf_folder(GetParam()));
  // In bf16 the masters are split and joined again.
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const std::string to = path(std::string(name_of(dtype)));
    std::filesystem::create_directory(to);
    LoadedModel(hf_folder(GetParam()), 1, 4, dtype).store(to, type_of(original));
    const SafetensorsFolder written(to);
    ASSERT_EQ(written.tensors().size(), original.tensors().size());
    for (const LocatedTensor& tensor : original.tensors()) {
      const LocatedTensor* again = written.find(tensor.stored->name);
      ASSERT_NE(again, nullptr) << tensor.stored->name;
      ASSERT_EQ(again->stored->shape, tensor.stored->shape);
      std::vector<std::byte> a(tensor.stored->bytes()), b(again->stored->bytes());
      tensor.read_bytes(0, a);
      again->read_bytes(0, b);
      EXPECT_EQ(a, b) << tensor.stored->name;
    }
    const std::string single = "/model.safetensors";
    if (std::filesystem::exists(hf_folder(GetParam()) + single)) {
      EXPECT_EQ(content_of(to + single), content_of(hf_folder(GetParam()) + single));
    }
  }
}

TEST_P(HfFolder, AWrittenConfigurationIsReadAgain) {
  const std::string json = make_config_json(read_model_config(hf_folder(GetParam())), DType::BF16);
  write("config.json", json);
  EXPECT_EQ(make_config_json(read_model_config(folder_.string()), DType::BF16), json);
  EXPECT_NE(json.find(R"("torch_dtype": "bfloat16")"), std::string::npos);
}

TEST_P(HfFolder, EachMissingTensorIsAnError) {
  const SafetensorsFolder original(hf_folder(GetParam()));
  const ModelConfig config = read_model_config(hf_folder(GetParam()));
  const auto model = create_model(config, {}, DType::F32);
  const std::vector<MappedTensor> tensors = map_tensors(config, model->parameters());
  for (size_t missing = 0; missing < tensors.size(); ++missing) {
    std::vector<TensorSpec> rest = stored_tensors(tensors, StoredType::F16);
    const std::string name = rest[missing].name;
    rest.erase(rest.begin() + static_cast<ptrdiff_t>(missing));
    SafetensorsFolderWriter writer(folder_.string(), rest);
    for (size_t i = 0; i < rest.size(); ++i) {
      writer.write_bytes(i, 0, std::vector<std::byte>(rest[i].bytes()));
    }
    writer.finish();
    const SafetensorsFolder folder(folder_.string());
    const auto error =
        error_of<ConfigError>([&] { match_tensors(config, model->parameters(), folder); });
    EXPECT_SAYS(error, "has no tensor '" + name + "'");
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, HfFolder, testing::ValuesIn(kHfCases),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ebb::test
