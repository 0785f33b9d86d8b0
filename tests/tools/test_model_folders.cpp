// Hugging Face folders on the command line: training from their weights, the cache, conversion and
// errors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/json_text.h"
#include "io/new_file.h"
#include "io/safetensors_folder.h"
#include "model_zoo/model_files.h"
#include "tests/bytes_of.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/tools/run_ebb.h"
#include "tools/model_source.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using test::hf_folder;

constexpr int64_t kBatch = 2, kLength = 8;

class ModelFolders : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 200; ++i) tokens_.push_back(static_cast<uint16_t>(i * i % 37));
    data_ = folder_.write("data.bin", test::bytes_of(tokens_));
  }

  Outcome train(const Arguments& model, const Arguments& more = {},
                const std::string& steps = "2") const {
    Arguments arguments = {"train",      "--data",
                           data_,        "--token-type",
                           "u16",        "--seq-length",
                           "8",          "--order",
                           "sequential", "--dtype",
                           "fp32",       "--steps",
                           steps,        "--chunk-size",
                           "256KiB",     "--threads",
                           "1",          "--log",
                           log_,         "--device",
                           "host",       "--micro-batch-size",
                           "2"};
    return run_ebb(arguments + model + more, folder_.path());
  }
  Outcome convert(const std::string& from, const std::string& to, const Arguments& more) const {
    Arguments arguments = {"convert", "--model", from, "--to", to};
    return run_ebb(arguments + more, folder_.path());
  }

  nlohmann::json first_step() const {
    return parse_json(content_of(log_).substr(0, content_of(log_).find('\n')));
  }
  /// Returns the batch of the first step.
  test::HfLosses::Batch first_batch() const {
    test::HfLosses::Batch batch;
    for (size_t i = 0; i < kBatch * kLength; ++i) {
      batch.tokens.push_back(tokens_[i]);
      batch.targets.push_back(tokens_[i + 1]);
    }
    return batch;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
  std::vector<uint16_t> tokens_;
  std::string data_, log_ = (folder_.path() / "log.jsonl").string();
};

TEST_F(ModelFolders, AreTrainedFromTheirWeights) {
  for (const char* name : {"gpt2", "llama"}) {
    const Outcome outcome = train({"--model", hf_folder(name)});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_SAYS(outcome.err, "weights: loaded");
    test::LoadedModel model(hf_folder(name), kBatch, kLength, DType::F32);
    EXPECT_NEAR(first_step()["loss"].get<double>(), model.loss(first_batch()), 1e-6) << name;
    EXPECT_EQ(first_step()["learning_rate"], 1e-5);
  }
}

TEST_F(ModelFolders, WithDropoutThatTheRunDoesNotApplyAreReported) {
  const auto header = [this](const Arguments& more) {
    return train({"--model", hf_folder("gpt2")}, more, "1").err;
  };
  EXPECT_SAYS(header({}), "config.json has dropout 0.1, which transformers applies in training");
  EXPECT_EQ(header({"--dropout", "0.1"}).find("config.json has dropout"), std::string::npos);
  EXPECT_EQ(train({"--model", hf_folder("mistral")}, {}, "1").err.find("dropout"),
            std::string::npos);
}

TEST_F(ModelFolders, GiveOnlyTheirShapeIfRequested) {
  const Outcome outcome = train({"--model", hf_folder("gpt2"), "--init", "random"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.err, "weights: random (seed 1)");
  EXPECT_NEAR(first_step()["loss"].get<double>(), std::log(37.0), 0.05);
  EXPECT_DOUBLE_EQ(first_step()["learning_rate"].get<double>(), 3e-4);
}

TEST_F(ModelFolders, AreFoundInTheCacheByTheirId) {
  const fs::path model = folder_.path() / "hub" / "models--some--tiny";
  fs::create_directories(model / "snapshots");
  fs::create_directory_symlink(hf_folder("gpt2"), model / "snapshots" / "abc");
  fs::create_directory(model / "snapshots" / "older");
  fs::create_directory(model / "refs");
  std::ofstream(model / "refs" / "main") << "abc";
  ::setenv("HF_HUB_CACHE", path("hub").c_str(), 1);
  const Outcome outcome = train({"--model", "some/tiny"}, {"--dry-run"});
  const Outcome other = train({"--model", "some/other"});
  ::unsetenv("HF_HUB_CACHE");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_SAYS(outcome.out, "some/tiny: 2 layers");
  EXPECT_FAILS(other, 2, "hf download some/other");
}

/// Sets HF_HUB_CACHE to `hub` in the test's folder.
class HubCache {
 public:
  explicit HubCache(const fs::path& folder) : model_(folder / "hub" / "models--some--tiny") {
    fs::create_directories(model_ / "snapshots");
    fs::create_directories(model_ / "refs");
    ::setenv("HF_HUB_CACHE", (folder / "hub").c_str(), 1);
  }
  ~HubCache() { ::unsetenv("HF_HUB_CACHE"); }

  const fs::path& model() const { return model_; }
  void add(const char* snapshot) const {
    fs::create_directory_symlink(hf_folder("gpt2"), model_ / "snapshots" / snapshot);
  }

 private:
  fs::path model_;
};

TEST_F(ModelFolders, OfTheCacheWithSeveralSnapshotsAreListed) {
  const HubCache cache(folder_.path());
  const Arguments dry = {"--dry-run"};
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "hf download some/tiny");
  cache.add("bbb");
  EXPECT_EQ(train({"--model", "some/tiny"}, dry).exit_code, 0);  // the only one
  EXPECT_EQ(train({"--model", cache.model().string()}, dry).exit_code, 0);
  cache.add("aaa");
  const std::string list = (cache.model() / "snapshots/aaa").string() + "', '" +
                           (cache.model() / "snapshots/bbb").string() + "'";
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "there are several snapshots");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, list);
  EXPECT_FAILS(train({"--model", cache.model().string()}), 2, list);
  std::ofstream(cache.model() / "refs/main") << "ccc";
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2,
               "names the snapshot 'ccc', which does not exist");
  std::ofstream(cache.model() / "refs/main") << "bbb\n";
  EXPECT_EQ(train({"--model", "some/tiny"}, dry).exit_code, 0);
}

TEST_F(ModelFolders, OfTheCacheWithBrokenParts) {
  const HubCache cache(folder_.path());
  const Arguments dry = {"--dry-run"};
  fs::create_symlink("/gone/abc", cache.model() / "snapshots" / "abc");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "snapshots/abc' is a link to '/gone/abc'");
  std::ofstream(cache.model() / "refs/main") << "abc";
  cache.add("bbb");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "snapshots/abc' is a link to '/gone/abc'");
  std::ofstream(cache.model() / "refs/main") << "";
  EXPECT_EQ(train({"--model", "some/tiny"}, dry).exit_code, 0);  // the only one
  cache.add("ccc");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "refs/main' names no snapshot");
  fs::remove(cache.model() / "refs/main");
  fs::create_directory(cache.model() / "refs/main");
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "refs/main' is a folder and not a file");
}

/// The variables of huggingface_hub, with their expansions.
TEST_F(ModelFolders, AreFoundInTheCacheThatTheVariablesName) {
  const std::string home = ::getenv("HOME") == nullptr ? "" : ::getenv("HOME");
  fs::create_directories(path("x/hub/models--some--tiny/snapshots"));
  fs::create_directory_symlink(hf_folder("gpt2"), path("x/hub/models--some--tiny/snapshots/abc"));
  ::setenv("HOME", folder_.path().c_str(), 1);
  ::setenv("EBB_TEST_X", "x", 1);
  for (const auto& [name, value] :
       {std::pair{"HF_HUB_CACHE", "~/x/hub"}, std::pair{"HF_HUB_CACHE", "$HOME/x/hub"},
        std::pair{"HF_HUB_CACHE", "${HOME}/${EBB_TEST_X}/hub"},
        std::pair{"HUGGINGFACE_HUB_CACHE", "~/$EBB_TEST_X/hub"}, std::pair{"HF_HOME", "~/x"},
        std::pair{"HF_HOME", "$HOME/x"}}) {
    ::setenv(name, value, 1);
    const Outcome outcome = train({"--model", "some/tiny"}, {"--dry-run"});
    EXPECT_EQ(outcome.exit_code, 0) << name << "=" << value << "\n" << outcome.err;
    ::unsetenv(name);
  }
  ::setenv("HF_HUB_CACHE", "/$EBB_TEST_NONE/hub$", 1);  // names that are not set stay
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "in '/$EBB_TEST_NONE/hub$/models--some--tiny'");
  ::setenv("HF_HUB_CACHE", "~other/hub", 1);
  EXPECT_FAILS(train({"--model", "some/tiny"}), 2, "HF_HUB_CACHE '~other/hub': allowed is ~/");
  ::unsetenv("HF_HUB_CACHE");
  ::unsetenv("EBB_TEST_X");
  ::setenv("HOME", home.c_str(), 1);
}

TEST_F(ModelFolders, WithNamesThatAreNoIdsAreRefused) {
  for (const char* name : {"some/tiny@abc", "https://huggingface.co/some/tiny", "a/b/c",
                           "some/tiny:main", "some/", "hf://some/tiny"}) {
    EXPECT_FAILS(train({"--model", name}), 2, "a hub id has the form org/name");
  }
}

constexpr const char* kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:77\nsize 4400000000\n";

/// Also the files that are only copied, before the first step.
TEST_F(ModelFolders, WithLfsPointersOrBrokenLinksAreRefused) {
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    fs::copy(hf_folder("gpt2"), path("model"));
    folder_.write(std::string("model/") + name, kLfsPointer);
    EXPECT_FAILS(train({"--model", path("model")}), 2, "git lfs pull");
    EXPECT_FAILS(convert(path("model"), path("to"), {}), 2, "git lfs pull");
    fs::remove(path("model/") + name);
    fs::create_symlink("../../blobs/77", path("model/") + name);
    EXPECT_FAILS(train({"--model", path("model")}), 2, "is a link to '../../blobs/77'");
    EXPECT_FAILS(convert(path("model"), path("to"), {}), 2, "run `hf download` again");
    fs::remove_all(path("model"));
  }
  fs::create_symlink("nowhere", path("model"));
  EXPECT_FAILS(train({"--model", path("model")}), 2, "is a link to 'nowhere'");
  data_ = folder_.write("pointer.bin", kLfsPointer);
  EXPECT_FAILS(train({"--model", hf_folder("gpt2")}), 2, "git lfs pull");
}

/// A checkpoint contains the whole model. --save-keep may remove the checkpoint from which a run
/// was resumed.
TEST_F(ModelFolders, AreNotNeededToResume) {
  fs::copy(hf_folder("mistral"), path("model"));
  const Outcome whole =
      train({"--model", path("model")}, {"--save", path("save"), "--save-steps", "2"}, "5");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto hash = [this] {
    const std::string text = content_of(log_);
    return parse_json(text.substr(text.find("{\"end\"")))["state_hash"].get<std::string>();
  };
  const std::string expected = hash(), last = path("save/step-5");
  const std::string config = content_of(last + "/config.json");
  const std::string generation = content_of(last + "/generation_config.json");
  ASSERT_FALSE(generation.empty());
  for (const char* gone : {"model", "save/step-4", "save/step-5"}) fs::remove_all(path(gone));
  const Outcome outcome = run_ebb(
      {"train", "--resume", path("save"), "--save-keep", "1", "--save-steps", "1"}, folder_.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("results differ"), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(path("save/step-2")));
  EXPECT_EQ(hash(), expected);
  EXPECT_EQ(content_of(last + "/config.json"), config);
  EXPECT_EQ(content_of(last + "/generation_config.json"), generation);
  EXPECT_SAYS(content_of(last + "/train.toml"), path("model"));
}

TEST_F(ModelFolders, WithInvalidContentAreRefused) {
  EXPECT_FAILS(train({"--model", path("none")}), 2, "there is no such folder");
  EXPECT_FAILS(train({"--model", hf_folder("gpt2") + "/config.json"}), 2,
               "this is a file; give its folder");
  fs::create_directory(path("empty"));
  EXPECT_FAILS(train({"--model", path("empty")}), 2, "has no config.json");
  EXPECT_FAILS(convert(path("empty"), path("to"), {}), 2, "has neither model.safetensors");
  EXPECT_FAILS(train({"--model", hf_folder("gpt2"), "--preset", "gpt2"}), 2, "exclude each other");
  EXPECT_FAILS(train({"--preset", "gpt2", "--init", "random"}), 2, "--init random needs --model");
  EXPECT_FAILS(train({"--model", hf_folder("bert")}), 2, "learns from labels");
  fs::copy(hf_folder("gpt2"), path("cut"));
  const std::string file = path("cut/model.safetensors");
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_FAILS(train({"--model", path("cut")}), 2, "lies beyond");
  EXPECT_FAILS(convert(path("cut"), path("to"), {}), 2, "lies beyond");
  EXPECT_FALSE(fs::exists(path("to.unfinished")));
}

TEST_F(ModelFolders, AreCopiedByteForByte) {
  for (const std::string& name : test::kHfCases) {
    const Outcome outcome = convert(hf_folder(name), path(name), {});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(content_of(path(name) + "/config.json"),
              content_of(hf_folder(name) + "/config.json"));
    if (name == "llama") continue;  // three files in the fixture, one in the copy
    EXPECT_EQ(content_of(path(name) + "/model.safetensors"),
              content_of(hf_folder(name) + "/model.safetensors"));
  }
}

TEST_F(ModelFolders, ChangeTypeAndNumberOfFiles) {
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

TEST_F(ModelFolders, OfFp64AreConvertedOrCopied) {
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

/// Returns a value for an element of a parameter, exact in fp16.
float weight(ParameterId id, uint64_t element) {
  return static_cast<float>((id * 31 + element * 7) % 127) / 64 - 1;
}

TEST_F(ModelFolders, AreWrittenForAPreset) {
  for (const char* preset : {"toy-bytes", "llama-toy-bytes"}) {
    const ModelSource source = preset_source(preset);
    const auto model = create_model(source.config, {}, DType::F32);
    const auto tensors = map_tensors(source.config, model->parameters());
    NewFolder to(path(preset));
    SafetensorsFolderWriter writer(to.path(), stored_tensors(tensors, StoredType::F16));
    store_weights(
        tensors,
        [](ParameterId id, uint64_t first, std::span<float> values) {
          for (size_t i = 0; i < values.size(); ++i) values[i] = weight(id, first + i);
        },
        writer);
    writer.finish();
    write_model_files(source.folder, source.config, DType::F16, to.path());
    to.commit();
    const ModelSource again = folder_source(path(preset), false);
    const SafetensorsFolder folder(again.folder);
    load_weights(folder, match_tensors(again.config, model->parameters(), folder),
                 [](ParameterId id, uint64_t first, std::span<const float> values) {
                   for (size_t i = 0; i < values.size(); ++i) {
                     ASSERT_EQ(values[i], weight(id, first + i));
                   }
                 });
    const Outcome outcome = train({"--model", path(preset)}, {"--dry-run"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
}

TEST_F(ModelFolders, InvalidConversionsAreRefused) {
  EXPECT_FAILS(run_ebb({"convert", "--to", path("a")}, folder_.path()), 2, "--model is missing");
  EXPECT_FAILS(run_ebb({"convert", "--model", "a"}, folder_.path()), 2, "--to is missing");
  EXPECT_FAILS(convert(hf_folder("gpt2"), path("a"), {"--save-dtype", "int8"}), 2, "bf16");
  fs::copy(hf_folder("gpt2"), path("quantised"));
  folder_.write("quantised/config.json", R"({"quantization_config": {"quant_method": "awq"}})");
  EXPECT_FAILS(convert(path("quantised"), path("b"), {"--save-dtype", "fp16"}), 2, "quantised");
  EXPECT_EQ(convert(path("quantised"), path("c"), {}).exit_code, 0);
}

/// Writes a folder of fp32 tensors with these names and shapes, all of zeros, beside a config.json.
void write_folder(const std::string& folder, const std::vector<TensorSpec>& specs,
                  const std::string& file = "model.safetensors") {
  fs::create_directories(folder);
  SafetensorsWriter writer(folder + "/" + file, specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    writer.write_bytes(i, 0, std::vector<std::byte>(specs[i].bytes()));
  }
  writer.finish();
}

/// The tensors of a case, as written by transformers.
std::vector<TensorSpec> specs_of(const std::string& name) {
  std::vector<TensorSpec> specs;
  const SafetensorsFolder folder(hf_folder(name));
  for (const LocatedTensor& tensor : folder.tensors()) specs.push_back(*tensor.stored);
  return specs;
}

TEST_F(ModelFolders, AreComparedWithTheirConfigurationBeforeConversion) {
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

TEST_F(ModelFolders, OfABaseModelAreConverted) {
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

TEST_F(ModelFolders, OfUnknownModelsAreConvertedWithANotice) {
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

TEST_F(ModelFolders, WithTwoSetsOfWeightsAreReported) {
  fs::copy(hf_folder("llama"), path("both"));  // three files with an index
  std::vector<TensorSpec> specs = specs_of("llama");
  write_folder(path("both"), specs);
  const std::string text = "only '" + path("both") +
                           "/model.safetensors' is read, as transformers does; the folder's other "
                           "weights are left out: 'model-00001-of-00003.safetensors' and 2 more "
                           "(model.safetensors.index.json)";
  const Outcome outcome = train({"--model", path("both")}, {"--dry-run"});
  EXPECT_SAYS((outcome.err + outcome.out), text) << outcome.err;
  EXPECT_SAYS(convert(path("both"), path("to"), {}).err, text);
  EXPECT_SAYS(run_ebb({"eval", "--model", path("both"), "--data", data_, "--token-type", "u16",
                       "--seq-length", "8", "--device", "host"},
                      folder_.path())
                  .err,
              text);
  fs::copy_file(path("both/model-00001-of-00003.safetensors"), path("both/model.safetensors"),
                fs::copy_options::overwrite_existing);
  EXPECT_FAILS(train({"--model", path("both")}), 2, "which the model needs");
  EXPECT_FAILS(train({"--model", path("both")}), 2, text);
  // An index of the single file is usual.
  folder_.write("to/model.safetensors.index.json",
                R"({"weight_map": {"lm_head.weight": "model.safetensors"}})");
  EXPECT_EQ(convert(path("to"), path("again"), {}).err, "");
}

TEST_F(ModelFolders, WithHeadsThatAreNotSavedAreReported) {
  std::vector<TensorSpec> specs = specs_of("bert");
  for (const char* name : {"bert.embeddings.position_ids", "bert.pooler.dense.weight",
                           "bert.pooler.dense.bias", "cls.seq_relationship.bias"}) {
    specs.push_back({name, StoredType::F32, {12}});
  }
  write_folder(path("from"), specs);
  fs::copy_file(hf_folder("bert") + "/config.json", path("from/config.json"));
  const ModelSource source = folder_source(path("from"), false);
  const auto model = create_model(source.config, {}, DType::F32);
  const SourceWeights weights(source, *model);
  ASSERT_EQ(weights.notices().size(), 1u);
  EXPECT_SAYS(weights.notices()[0],
              "3 tensors of the folder are no part of the model, so they are not loaded and not "
              "saved with it; the first is '");
  const ModelSource plain = folder_source(hf_folder("bert"), false);
  EXPECT_TRUE(SourceWeights(plain, *model).notices().empty());
}

}  // namespace
}  // namespace ebb
