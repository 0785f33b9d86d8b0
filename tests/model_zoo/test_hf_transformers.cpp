// Transformers computes the same losses with the folders that Ebb writes. The test is skipped if
// Python has no transformers; EBB_PYTHON names a Python.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/json_text.h"
#include "model_zoo/model_files.h"
#include "tests/io/safetensors_files.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/model_zoo/python.h"

namespace ebb::test {
namespace {

class HfTransformers : public FolderTest {};

TEST_F(HfTransformers, HasTheLossesOfTrainedModels) {
  EBB_SKIP_WITHOUT_PYTHON("torch, transformers");
  std::string command = python() + " " + source_path("tests/model_zoo/transformers_losses.py");
  std::vector<std::vector<double>> own;
  for (const std::string& name : kHfCases) {
    const HfLosses data = read_hf_losses(name);
    LoadedModel model(hf_folder(name), data.batch, data.length, DType::F32);
    for (const HfLosses::Batch& batch : data.batches) model.train(batch, 0.01);
    own.emplace_back();
    for (const HfLosses::Batch& batch : data.batches) own.back().push_back(model.loss(batch));
    EXPECT_GT(std::abs(own.back()[0] - data.losses[0]), 1e-3) << name << " was not trained";
    std::filesystem::create_directory(path(name));
    model.store(path(name), StoredType::F32, 10'000);
    write_model_files(hf_folder(name), model.config(), DType::F32, path(name));
    command += fmt::format(" {} {}/losses.json", path(name), hf_folder(name));
  }
  const std::string said = output_of(command);
  ASSERT_FALSE(said.empty()) << command;
  const auto theirs = parse_json(said).get<std::vector<std::vector<double>>>();
  ASSERT_EQ(theirs.size(), own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    ASSERT_EQ(theirs[i].size(), own[i].size());
    for (size_t b = 0; b < own[i].size(); ++b) {
      EXPECT_NEAR(theirs[i][b] / own[i][b], 1, 1e-5) << kHfCases[i] << ", batch " << b;
    }
  }
}

}  // namespace
}  // namespace ebb::test
