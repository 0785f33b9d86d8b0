// Hugging Face folders on the command line: training from their weights, and errors.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/json_text.h"
#include "io/new_file.h"
#include "io/safetensors_folder.h"
#include "model_zoo/model_files.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/tools/model_folders.h"
#include "tools/model_source.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBatch = 2, kLength = 8;

class ModelFolders : public ModelFolderRuns {
 protected:
  nlohmann::json first_step() const {
    return parse_json(content_of(log_).substr(0, content_of(log_).find('\n')));
  }
  /// Returns the batch of the first step.
  HfLosses::Batch first_batch() const {
    HfLosses::Batch batch;
    for (size_t i = 0; i < kBatch * kLength; ++i) {
      batch.tokens.push_back(tokens_[i]);
      batch.targets.push_back(tokens_[i + 1]);
    }
    return batch;
  }
};

TEST_F(ModelFolders, AreTrainedFromTheirWeights) {
  for (const char* name : {"gpt2", "llama"}) {
    const Outcome outcome = train({"--model", hf_folder(name)});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_SAYS(outcome.err, "weights: loaded");
    LoadedModel model(hf_folder(name), kBatch, kLength, DType::F32);
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
  EXPECT_EQ(outcome.err.find("its results differ"), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(path("save/step-2")));
  EXPECT_EQ(hash(), expected);
  EXPECT_EQ(content_of(last + "/config.json"), config);
  EXPECT_EQ(content_of(last + "/generation_config.json"), generation);
  EXPECT_SAYS(content_of(last + "/train.toml"), path("model"));
}

/// As --resume: the user gives the folder of --save to all commands.
TEST_F(ModelFolders, OfCheckpointsStandForTheNewestOne) {
  const std::string saved = path("save"), newest = path("save/step-10");
  ASSERT_EQ(
      train({"--model", hf_folder("gpt2")}, {"--save", saved, "--save-steps", "9"}, "10").exit_code,
      0);
  ASSERT_TRUE(fs::exists(path("save/step-9")));
  EXPECT_SAYS(train({"--model", saved}).err, "model   " + newest + ":");
  const auto text_of = [this](const std::string& model) {
    return run_ebb({"generate", "--model", model, "--prompt-tokens", "1,2,3", "--max-tokens", "9",
                    "--device", "host"},
                   folder_.path())
        .out;
  };
  EXPECT_EQ(text_of(saved), text_of(newest));
  EXPECT_FALSE(text_of(saved).empty());
  ASSERT_EQ(convert(saved, path("converted"), {}).exit_code, 0);
  EXPECT_EQ(content_of(path("converted/model.safetensors")),
            content_of(newest + "/model.safetensors"));
}

TEST_F(ModelFolders, WithInvalidContentAreRefused) {
  EXPECT_FAILS(train({"--model", path("none")}), 2, "there is no such folder");
  EXPECT_FAILS(train({"--model", hf_folder("gpt2") + "/config.json"}), 2,
               "this is a file; give its folder");
  fs::create_directory(path("empty"));
  EXPECT_FAILS(train({"--model", path("empty")}), 2, "the folder is empty");
  EXPECT_FAILS(train({"--model", path("emtpy")}), 2, "did you mean " + path("empty") + "?");
  EXPECT_FAILS(train({"--model", "no-such-model"}), 2, "`hf download ORG/NAME`");
  fs::create_directories(path("other/part"));
  EXPECT_FAILS(train({"--model", path("other")}), 2, "has no config.json");
  EXPECT_FAILS(convert(path("other"), path("to"), {}), 2, "has neither model.safetensors");
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

TEST_F(ModelFolders, WithTwoSetsOfWeightsAreReported) {
  fs::copy(hf_folder("llama"), path("both"));  // three files with an index
  std::vector<TensorSpec> specs = specs_of("llama");
  write_folder(path("both"), specs);
  const std::string text = "only '" + path("both") +
                           "/model.safetensors' is read, as transformers does; the folder's other "
                           "weights are left out: 'model-00001-of-00003.safetensors' and 2 more "
                           "(model.safetensors.index.json)";
  const Outcome outcome = train({"--model", path("both")}, {"--dry-run"});
  EXPECT_SAYS(outcome.err + outcome.out, text);
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
}  // namespace ebb::test
