// Folders of weights: one file, or several files and an index that must agree with them.
#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "io/json_text.h"
#include "io/safetensors_folder.h"
#include "io/safetensors_folder_writer.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

class WeightFolder : public FolderTest {
 protected:
  /// Writes tensors "0", "1", ... with the given numbers of floats. Each float is the name as a
  /// number.
  void write_weights(const std::vector<uint64_t>& sizes, uint64_t shard_bytes) const {
    std::vector<TensorSpec> tensors;
    for (size_t i = 0; i < sizes.size(); ++i) {
      tensors.push_back({std::to_string(i), StoredType::F32, {sizes[i]}});
    }
    SafetensorsFolderWriter writer(folder_.string(), tensors, shard_bytes);
    for (size_t i = 0; i < sizes.size(); ++i) {
      writer.write_floats(i, 0, std::vector<float>(sizes[i], static_cast<float>(i)));
    }
    writer.finish();
  }
  void write_index(const nlohmann::json& weight_map) const {
    write(kIndex, json_text(nlohmann::json{{"weight_map", weight_map}}));
  }
  template <class E>
  E opening_fails() const {
    return error_of<E>([&] { SafetensorsFolder folder(folder_.string()); });
  }
};

TEST_F(WeightFolder, OneFileHasNoIndex) {
  write_weights({3, 5}, 32);
  EXPECT_EQ(names(), std::vector<std::string>{"model.safetensors"});
  const SafetensorsFolder folder(folder_.string());
  EXPECT_EQ(folder.tensors().size(), 2u);
  EXPECT_EQ(folder.total_bytes(), 32u);
  EXPECT_EQ(folder.find("2"), nullptr);
}

TEST_F(WeightFolder, LargeWeightsAreSplitBetweenTensors) {
  write_weights({3, 6, 2, 20, 1}, 32);  // 12 | 24 + 8 | 80 | 4 bytes
  EXPECT_EQ(names(),
            (std::vector<std::string>{
                "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors", kIndex}));
  const auto index = parse_json(content_of(path(kIndex)));
  EXPECT_EQ(index["metadata"]["total_size"], 128);
  EXPECT_EQ(index["weight_map"]["1"], "model-00002-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["2"], "model-00002-of-00004.safetensors");
  const SafetensorsFolder folder(folder_.string());
  ASSERT_EQ(folder.tensors().size(), 5u);
  for (const char* name : {"0", "1", "2", "3", "4"}) {
    const LocatedTensor* tensor = folder.find(name);
    ASSERT_NE(tensor, nullptr);
    std::vector<float> values(tensor->stored->num_elements());
    tensor->read_floats(0, values);
    for (const float value : values) EXPECT_EQ(value, std::stof(name));
  }
}

TEST_F(WeightFolder, WithoutWeightsIsAnError) {
  EXPECT_SAYS(opening_fails<ConfigError>(), "has neither model.safetensors nor");
  for (const auto& [name, says] :
       {std::pair{"pytorch_model.bin", "is not read: load the model with transformers"},
        std::pair{"pytorch_model.bin.index.json", "is not read"},
        std::pair{"tf_model.h5", "is not read"}, std::pair{"consolidated.00.pth", "is not read"},
        std::pair{"adapter_model.safetensors", "is an adapter"},
        std::pair{"adapter_model.bin", "is an adapter"},
        std::pair{"model-00001-of-00002.safetensors", "index.json, which names the parts"},
        std::pair{"consolidated.safetensors", "has other names of tensors"},
        std::pair{"model.fp16.safetensors", "is a variant: rename it"},
        std::pair{"model.safetensors.index.fp16.json", "is the index of a variant"},
        std::pair{"weights.safetensors", "rename it to model.safetensors if"},
        std::pair{"model.safetensors.gz", "decompress it (gunzip)"},
        std::pair{"llama-q4.gguf", "the model that it was made from"}}) {
    write(name, "");
    EXPECT_SAYS(opening_fails<ConfigError>(), std::string("; its '") + name + "' ");
    EXPECT_SAYS(opening_fails<ConfigError>(), says);
    std::filesystem::remove(path(name));
  }
  const auto error = error_of<ConfigError>([&] { SafetensorsFolder folder(path("none")); });
  EXPECT_SAYS(error, "is not a folder");
}

/// huggingface_hub links a file into its snapshot after the whole file was loaded.
TEST_F(WeightFolder, AnInterruptedDownloadIsNamed) {
  write("models--a--b/blobs/77.0123abcd.incomplete", "");
  write("models--a--b/snapshots/5/config.json", "{}");
  const auto fails = [](const std::string& folder) {
    return error_of<ConfigError>([&] { SafetensorsFolder opened(folder); });
  };
  EXPECT_SAYS(fails(path("models--a--b/snapshots/5")), "download is incomplete");
  write("local/.cache/huggingface/download/x.77.incomplete", "");
  EXPECT_SAYS(fails(path("local")), "download is incomplete");
}

TEST_F(WeightFolder, ABrokenLinkIsNamed) {
  std::filesystem::create_symlink("nowhere/weights", path("model.safetensors"));
  const auto error = opening_fails<ConfigError>();
  EXPECT_SAYS(error, path("model.safetensors"));
  EXPECT_SAYS(error, "is a link to 'nowhere/weights', which does not exist");
  std::filesystem::remove(path("model.safetensors"));
  std::filesystem::create_symlink("nowhere/index", path(kIndex));
  EXPECT_SAYS(opening_fails<ConfigError>(), "is a link to 'nowhere/index', which does not exist");
}

TEST_F(WeightFolder, IndexAndFilesMustAgree) {
  write_weights({3, 6}, 12);
  const std::string one = "model-00001-of-00002.safetensors",
                    two = "model-00002-of-00002.safetensors";
  write_index({{"0", one}, {"1", two}, {"x", two}});
  EXPECT_SAYS(opening_fails<FormatError>(), "tensor 'x' is not in '" + two);
  write_index({{"0", one}, {"x", two}});
  const auto unnamed = opening_fails<FormatError>();
  EXPECT_SAYS(unnamed, "tensor '1' is here, but the index does not name it");
  EXPECT_EQ(unnamed.path, path(two));
  write_index({{"0", two}, {"1", two}});
  EXPECT_SAYS(opening_fails<FormatError>(), "tensor '0' is not in");
  write_index({{"0", one}, {"1", one}, {"x", two}});
  EXPECT_SAYS(opening_fails<FormatError>(), "tensor '1' is here, but the index says in " + one);
  write_index({{"0", one}, {"1", "model-00003-of-00003.safetensors"}});
  EXPECT_SAYS(opening_fails<ConfigError>(),
              "names 2 files, of which the folder lacks 1: 'model-00003-of-00003.safetensors'");
  std::filesystem::create_symlink("../../blobs/77", path("model-00003-of-00003.safetensors"));
  EXPECT_SAYS(opening_fails<ConfigError>(), "is a link to '../../blobs/77', which does not exist");
}

TEST_F(WeightFolder, AnIndexMustNameFilesOfItsFolder) {
  for (const char* name :
       {"../model.safetensors", "/etc/passwd", "a/b.safetensors", "weights.bin"}) {
    write_index({{"0", name}});
    EXPECT_SAYS(opening_fails<FormatError>(), "allowed is the name of a .safetensors file");
  }
  write_index({{"0", 7}});
  EXPECT_SAYS(opening_fails<FormatError>(), "the file of tensor '0' is not a text");
  for (const char* text : {"{}", R"({"weight_map":[]})"}) {
    write(kIndex, text);
    EXPECT_SAYS(opening_fails<FormatError>(), "there is no object 'weight_map'");
  }
  for (const char* text : {"[]", "7"}) {
    write(kIndex, text);
    EXPECT_SAYS(opening_fails<FormatError>(), "needed is an object");
  }
  write(kIndex, R"({"weight_map")");
  EXPECT_SAYS(opening_fails<FormatError>(), "not JSON");
  write(kIndex, std::string(100000, '['));
  EXPECT_SAYS(opening_fails<FormatError>(), "levels");
}

TEST_F(WeightFolder, ATensorMustNotBeInTwoFiles) {
  const std::vector<TensorSpec> tensors(2, {"a", StoredType::F32, {4}});
  EXPECT_SAYS(
      error_of<ConfigError>([&] { SafetensorsFolderWriter writer(folder_.string(), tensors, 16); }),
      "tensor 'a' is given twice");
}

}  // namespace
}  // namespace ebb::test
