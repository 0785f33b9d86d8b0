// `ebb convert`: types, numbers of files, and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "io/json_text.h"
#include "io/safetensors_folder.h"
#include "io/safetensors_writer.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/tools/model_folders.h"
#include "tests/tools/run_ebb.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

using ConvertedFolders = ModelFolderRuns;

TEST_F(ConvertedFolders, AreCopiedByteForByte) {
  for (const std::string& name : kHfCases) {
    const Outcome outcome = convert(hf_folder(name), path(name), {});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(content_of(path(name) + "/config.json"),
              content_of(hf_folder(name) + "/config.json"));
    if (name == "llama") continue;  // three files in the fixture, one in the copy
    EXPECT_EQ(content_of(path(name) + "/model.safetensors"),
              content_of(hf_folder(name) + "/model.safetensors"));
  }
}

TEST_F(ConvertedFolders, ChangeTypeAndNumberOfFiles) {
  const Outcome outcome =
      convert(hf_folder("mistral"), path("wide"), {"--save-dtype", "fp32", "--shard-size", "10kB"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, "21 tensors in 4 files");
  EXPECT_EQ(parse_json(content_of(path("wide/config.json")))["dtype"], "float32");
  EXPECT_EQ(content_of(path("wide/generation_config.json")),
            content_of(hf_folder("mistral") + "/generation_config.json"));
  EXPECT_EQ(SafetensorsFolder(path("wide")).tensors()[0].stored->type, StoredType::F32);
  // fp32 represents every fp16 value, so converting back gives the same file.
  ASSERT_EQ(convert(path("wide"), path("back"), {"--save-dtype", "fp16"}).exit_code, 0);
  EXPECT_EQ(content_of(path("back/model.safetensors")),
            content_of(hf_folder("mistral") + "/model.safetensors"));
  EXPECT_FAILS(convert(path("wide"), path("back"), {}), 2, "is already there");
}

TEST_F(ConvertedFolders, OfFp64AreConvertedOrCopied) {
  const auto write_folder = [this](StoredType type) {
    fs::create_directories(path("wide"));
    folder_.write("wide/config.json", R"({"dtype": "float64"})");
    SafetensorsWriter writer(path("wide/model.safetensors"),
                             {{"a", type, {2}}, {"ids", StoredType::I64, {1}}});
    const double values[] = {0.1, -3};
    const auto bytes = std::as_bytes(std::span(values));
    writer.write_bytes(0, 0, bytes.first(2 * size_of(type)));
    writer.write_bytes(1, 0, bytes.first(8));
    writer.finish();
  };
  write_folder(StoredType::F64);
  ASSERT_EQ(convert(path("wide"), path("single"), {"--save-dtype", "fp32"}).exit_code, 0);
  EXPECT_EQ(parse_json(content_of(path("single/config.json")))["dtype"], "float32");
  const SafetensorsFile single(path("single/model.safetensors"));
  EXPECT_EQ(single.find("a")->type, StoredType::F32);
  EXPECT_EQ(single.find("ids")->type, StoredType::I64);
  std::vector<float> values(2);
  single.read_floats(*single.find("a"), 0, values);
  EXPECT_EQ(values, (std::vector<float>{0.1f, -3}));
  ASSERT_EQ(convert(path("wide"), path("copy"), {}).exit_code, 0);
  EXPECT_EQ(content_of(path("copy/model.safetensors")), content_of(path("wide/model.safetensors")));
  EXPECT_EQ(parse_json(content_of(path("copy/config.json")))["dtype"], "float64");
  write_folder(StoredType::F8E4M3);
  EXPECT_FAILS(convert(path("wide"), path("other"), {"--save-dtype", "bf16"}), 2,
               "tensor 'a' is F8_E4M3 [2]: --save-dtype converts F64, F32, BF16 and F16");
  EXPECT_EQ(convert(path("wide"), path("other"), {}).exit_code, 0);
}

TEST_F(ConvertedFolders, InvalidConversionsAreRefused) {
  EXPECT_FAILS(run_ebb({"convert", "--to", path("a")}, folder_.path()), 2, "--model is missing");
  EXPECT_FAILS(run_ebb({"convert", "--model", "a"}, folder_.path()), 2, "--to is missing");
  EXPECT_FAILS(convert(hf_folder("gpt2"), path("a"), {"--save-dtype", "int8"}), 2, "bf16");
  fs::copy(hf_folder("gpt2"), path("quantised"));
  folder_.write("quantised/config.json", R"({"quantization_config": {"quant_method": "awq"}})");
  EXPECT_FAILS(convert(path("quantised"), path("b"), {"--save-dtype", "fp16"}), 2, "quantised");
  EXPECT_EQ(convert(path("quantised"), path("c"), {}).exit_code, 0);
}

TEST_F(ConvertedFolders, AreComparedWithTheirConfigurationBeforeConversion) {
  const auto expect = [this](const char* of, const std::vector<TensorSpec>& specs,
                             const char* says) {
    write_folder(path("from"), specs);
    fs::copy_file(hf_folder(of) + "/config.json", path("from/config.json"),
                  fs::copy_options::overwrite_existing);
    for (const Arguments& more : {Arguments{}, Arguments{"--save-dtype", "fp32"}}) {
      EXPECT_FAILS(convert(path("from"), path("to"), more), 2, says);
      EXPECT_FALSE(fs::exists(path("to")));
    }
  };
  std::vector<TensorSpec> specs = specs_of("mistral");
  specs.pop_back();
  expect("mistral", specs, "which the model needs");
  specs = specs_of("mistral");
  for (TensorSpec& spec : specs) spec.name = "module." + spec.name;
  expect("mistral", specs, "DistributedDataParallel ('module.')");
  specs = specs_of("gpt2");
  for (TensorSpec& spec : specs) {
    if (spec.name == "transformer.wte.weight") spec.shape[0] = 36;
  }
  expect("gpt2", specs, "but the model that config.json describes has [37, 12]");
  specs = specs_of("qwen3");
  for (TensorSpec& spec : specs) {
    if (spec.name.find("down_proj") != std::string::npos) spec.type = StoredType::I8;
  }
  expect("qwen3", specs, "is I8 [");
}

TEST_F(ConvertedFolders, OfABaseModelAreConverted) {
  std::vector<TensorSpec> specs = specs_of("bert");
  std::erase_if(specs, [](const TensorSpec& spec) { return !spec.name.starts_with("bert."); });
  for (TensorSpec& spec : specs) spec.name = spec.name.substr(5);
  specs.push_back({"pooler.dense.bias", StoredType::F32, {12}});
  write_folder(path("from"), specs);
  std::string config = content_of(hf_folder("bert") + "/config.json");
  folder_.write("from/config.json", config);
  EXPECT_FAILS(convert(path("from"), path("to"), {}), 2, "without its head");
  config.replace(config.find("BertForMaskedLM"), 15, "BertModel");
  folder_.write("from/config.json", config);
  const Outcome outcome = convert(path("from"), path("to"), {"--save-dtype", "bf16"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("does not know"), std::string::npos) << outcome.err;
}

TEST_F(ConvertedFolders, OfUnknownModelsAreConvertedWithANotice) {
  write_folder(path("from"), {{"x.weight", StoredType::F32, {2}}, {"ids", StoredType::I64, {1}}});
  folder_.write("from/config.json", R"({"architectures": ["XForCausalLM"]})");
  const Outcome outcome = convert(path("from"), path("to"), {"--save-dtype", "bf16"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.err, "copied without a comparison with config.json");
  for (const StoredType type : {StoredType::I8, StoredType::U8, StoredType::I32}) {
    write_folder(path("from"), {{"x.weight", type, {2}}});
    EXPECT_FAILS(convert(path("from"), path("other"), {"--save-dtype", "bf16"}), 2,
                 "--save-dtype converts F64, F32, BF16 and F16");
  }
}

}  // namespace
}  // namespace ebb::test
