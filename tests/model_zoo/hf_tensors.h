// Changes the names, types and values of the tensors of small models that transformers saved, and
// matches them with the parameters of the model.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "model_zoo/hugging_face_config.h"
#include "tests/io/safetensors_files.h"
#include "tests/model_zoo/hf_folder.h"

namespace ebb::test {

/// A folder with changed weights of a case.
class HfTensors : public FolderTest {
 protected:
  struct Weights {
    std::vector<TensorSpec> specs;
    std::vector<std::string> data;

    size_t find(const std::string& name) const {
      for (size_t i = 0; i < specs.size(); ++i) {
        if (specs[i].name == name) return i;
      }
      throw std::runtime_error("no tensor " + name);
    }
    void add(TensorSpec spec, std::string bytes) {
      specs.push_back(std::move(spec));
      data.push_back(std::move(bytes));
    }
    void copy(const std::string& from, const std::string& to) {
      const size_t i = find(from);
      TensorSpec spec = specs[i];
      spec.name = to;
      add(std::move(spec), std::string(data[i]));
    }
  };

  void use(const std::string& name) {
    config_ = read_model_config(hf_folder(name));
    model_ = create_model(config_, {}, DType::F32);
    weights_ = {};
    const SafetensorsFolder folder(hf_folder(name));
    for (const LocatedTensor& tensor : folder.tensors()) {
      std::string bytes(tensor.stored->bytes(), '\0');
      tensor.read_bytes(0, std::as_writable_bytes(std::span(bytes)));
      weights_.add(*tensor.stored, std::move(bytes));
    }
  }

  void rename(const std::string& from, const std::string& to) {
    weights_.specs[weights_.find(from)].name = to;
  }
  void rename_all(const std::function<std::string(const std::string&)>& rename) {
    for (TensorSpec& spec : weights_.specs) spec.name = rename(spec.name);
  }
  void remove(const std::string& name) {
    const auto at = static_cast<ptrdiff_t>(weights_.find(name));
    weights_.specs.erase(weights_.specs.begin() + at);
    weights_.data.erase(weights_.data.begin() + at);
  }

  void write_tensors() const {
    SafetensorsWriter writer(path("model.safetensors"), weights_.specs);
    for (size_t i = 0; i < weights_.specs.size(); ++i) {
      writer.write_bytes(i, 0, std::as_bytes(std::span(weights_.data[i])));
    }
    writer.finish();
  }

  std::vector<MappedTensor> match() const {
    write_tensors();
    return match_tensors(config_, model_->parameters(), SafetensorsFolder(folder_.string()));
  }

  ModelConfig config_;
  std::unique_ptr<const Model> model_;
  Weights weights_;
};

}  // namespace ebb::test
