// Folders that Ebb writes, in transformers: a trained model has the same losses there. Skips where
// no Python has transformers; EBB_PYTHON names one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model_zoo/model_files.h"
#include "tests/io/safetensors_files.h"
#include "tests/model_zoo/hf_folder.h"

namespace ebb::test {
namespace {

std::string python() {
  const char* told = std::getenv("EBB_PYTHON");
  return told != nullptr ? told : "python3";
}

/// What a command says on stdout; nothing where it fails.
std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  return ::pclose(pipe) == 0 ? text : "";
}

class HfTransformers : public FolderTest {};

TEST_F(HfTransformers, HaveTheLossesOfWhatEbbTrained) {
  if (output_of(python() + " -c 'import torch, transformers; print(1)' 2>/dev/null").empty()) {
    GTEST_SKIP() << "'" << python() << "' has no torch and transformers; EBB_PYTHON names another";
  }
  std::string command = python() + " " + EBB_SOURCE_DIR + "/tests/model_zoo/transformers_losses.py";
  std::vector<std::vector<double>> own;
  for (const std::string& name : kHfCases) {
    const HfLosses data = read_hf_losses(name);
    LoadedModel model(hf_folder(name), data.batch, data.length, DType::F32);
    for (const HfLosses::Batch& batch : data.batches) model.train(batch, 0.01);
    own.emplace_back();
    for (const HfLosses::Batch& batch : data.batches) own.back().push_back(model.loss(batch));
    EXPECT_GT(std::abs(own.back()[0] - data.losses[0]), 1e-3) << name << " has not learned";
    std::filesystem::create_directory(path(name));
    model.store(path(name), StoredType::F32, 10'000);
    write_model_files(hf_folder(name), model.config(), DType::F32, path(name));
    command += fmt::format(" {} {}/losses.json", path(name), hf_folder(name));
  }
  const std::string said = output_of(command);
  ASSERT_FALSE(said.empty()) << command;
  const auto theirs = nlohmann::json::parse(said).get<std::vector<std::vector<double>>>();
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
