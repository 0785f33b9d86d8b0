// Trains from Hugging Face folders and converts them with the built `ebb`.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/safetensors_folder.h"
#include "io/safetensors_writer.h"
#include "tests/bytes_of.h"
#include "tests/model_zoo/hf_folder.h"
#include "tests/tools/run_ebb.h"

namespace ebb::test {

class ModelFolderRuns : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 200; ++i) tokens_.push_back(static_cast<uint16_t>(i * i % 37));
    data_ = folder_.write("data.bin", bytes_of(tokens_));
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

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
  std::vector<uint16_t> tokens_;
  std::string data_, log_ = (folder_.path() / "log.jsonl").string();
};

/// Writes a folder of fp32 tensors with these names and shapes, all of zeros, beside a config.json.
inline void write_folder(const std::string& folder, const std::vector<TensorSpec>& specs,
                         const std::string& file = "model.safetensors") {
  std::filesystem::create_directories(folder);
  SafetensorsWriter writer(folder + "/" + file, specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    writer.write_bytes(i, 0, std::vector<std::byte>(specs[i].bytes()));
  }
  writer.finish();
}

/// The tensors of a case, as written by transformers.
inline std::vector<TensorSpec> specs_of(const std::string& name) {
  std::vector<TensorSpec> specs;
  const SafetensorsFolder folder(hf_folder(name));
  for (const LocatedTensor& tensor : folder.tensors()) specs.push_back(*tensor.stored);
  return specs;
}

}  // namespace ebb::test
