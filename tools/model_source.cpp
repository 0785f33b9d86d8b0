#include "tools/model_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "device/errors.h"
#include "io/foreign_content.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/model_files.h"
#include "model_zoo/presets.h"
#include "tools/cli.h"
#include "tools/hub_cache.h"
#include "tools/nearest_name.h"
#include "tools/nearest_path.h"
#include "tools/saved_steps.h"

namespace ebb {
namespace fs = std::filesystem;

namespace {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

/// A suggestion for the value of --model, which names no folder.
std::string meant_by(const std::string& name) {
  const std::string model = nearest_name(name, cached_ids());
  if (!model.empty() && model != name) return fmt::format("did you mean {}? ", model);
  const std::string preset = nearest_name(name, preset_names());
  return preset.empty() ? "" : fmt::format("did you mean --preset {}? ", preset);
}

}  // namespace

std::string find_model_folder(const std::string& name) {
  std::error_code error;
  if (fs::is_directory(name, error)) {
    if (fs::exists(fs::path(name) / "config.json", error)) return name;
    // The folder of a model in the cache has no config.json itself, nor has a folder of
    // checkpoints.
    if (const auto snapshot = find_snapshot(name, name)) return *snapshot;
    if (const auto checkpoint = find_checkpoint(name)) return *checkpoint;
    if (fs::is_empty(name, error)) {
      throw ConfigError(fmt::format(
          "--model '{}': the folder is empty: give a folder with a model or a checkpoint", name));
    }
    return name;
  }
  refuse_broken_link(name);
  if (fs::exists(name, error)) {
    throw ConfigError(fmt::format("--model '{}': this is a file; give its folder", name));
  }
  const std::string folder = nearest_path(name, Among::Folders);
  if (!is_hub_id(name) && folder.empty()) {
    throw ConfigError(fmt::format(
        "--model '{}': there is no such folder; {}a hub id has the form org/name, without an "
        "address or a revision (for a revision, give the folder of its snapshot)",
        name, meant_by(name)));
  }
  const fs::path model = cached_model(name);
  if (const auto snapshot = find_snapshot(name, model)) return *snapshot;
  if (!folder.empty()) {
    throw ConfigError(
        fmt::format("--model '{}': there is no such folder; did you mean {}?", name, folder));
  }
  const bool has_owner = name.find('/') != std::string::npos;
  throw ConfigError(fmt::format(
      "--model '{}': there is no such folder, and no snapshot of a model of this name in '{}'; "
      "{}give the path of its folder, or download it with `hf download {}` (pip install "
      "huggingface_hub)",
      name, model.string(), meant_by(name), has_owner ? name : "ORG/NAME"));
}

ModelSource preset_source(const std::string& name) {
  const std::vector<std::string> names = preset_names();
  if (std::ranges::find(names, name) == names.end()) {
    const std::string meant = nearest_name(name, names);
    throw ConfigError(fmt::format("--preset '{}': there is no such preset; {}there are {}", name,
                                  meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                                  fmt::join(names, ", ")));
  }
  return {.name = name, .folder = {}, .config = find_preset(name).config};
}

ModelSource preset_source(const std::string& name, const std::string& tokenizer,
                          int64_t vocabulary) {
  ModelSource source = preset_source(name);
  std::visit([&](auto& config) { config.vocabulary = vocabulary; }, source.config);
  source.tokenizer = tokenizer;
  return source;
}

ModelSource folder_source(const std::string& name, bool random) {
  const std::string folder = find_model_folder(name);
  check_model_files(folder);
  const ModelConfig config = read_model_config(folder);
  std::error_code error;
  return {.name = fs::is_directory(name, error) ? folder : name,
          .folder = folder,
          .config = config,
          .has_weights = !random,
          .dropout = read_config_dropout(folder),
          .tokenizer = has_tokenizer(folder) ? folder : ""};
}

std::string tokenizer_folder(const std::string& name) {
  constexpr std::string_view kAllowed =
      "give the folder of a model with its tokenizer.json, or train:N for a vocabulary of N tokens "
      "that is trained on the text";
  std::error_code error;
  const bool exists = fs::exists(name, error);
  std::string folder = name;
  if (fs::is_directory(name, error)) {
    if (!has_tokenizer(name)) folder = find_snapshot(name, name).value_or(name);
  } else if (!exists && is_hub_id(name)) {
    folder = find_snapshot(name, cached_model(name)).value_or("");
  } else {
    folder.clear();
  }
  if (folder.empty()) {
    throw ConfigError(fmt::format("--tokenizer '{}': {}: {}", name,
                                  exists ? "this is a file"
                                         : "there is no such folder, and no snapshot of a model of "
                                           "this name in the local cache",
                                  kAllowed));
  }
  if (has_tokenizer(folder)) return folder;
  throw ConfigError(
      fmt::format("--tokenizer '{}': the folder has no tokenizer: {}", name, kAllowed));
}

void check_tokenizer(const ModelSource& source, const std::string& tokenizer, int64_t vocabulary,
                     bool is_given) {
  if (source.folder.empty() || vocabulary <= source.vocabulary()) return;
  throw ConfigError(fmt::format(
      "{} '{}': the tokenizer has {} tokens, but the vocabulary of the model '{}' has {}: {}",
      is_given ? "--tokenizer" : "--model", tokenizer, vocabulary, source.name, source.vocabulary(),
      is_given ? "leave out --tokenizer, or give the tokenizer of this model"
               : "give --tokenizer DIR, a tokenizer with fewer tokens"));
}

std::string tokenizer_advice(bool may_train) {
  const std::string folder = "give --tokenizer DIR, the folder of a model whose tokenizer it gets";
  return may_train ? folder +
                         ", or --tokenizer train:8192, a vocabulary of 8192 tokens that is "
                         "trained on the text"
                   : folder;
}

SourceWeights::SourceWeights(const ModelSource& source, const Model& model)
    : folder_(source.folder), tensors_(match_tensors(source.config, model.parameters(), folder_)) {
  if (!folder_.notice().empty()) notices_.push_back(folder_.notice());
  const std::vector<std::string> others = tensors_of_other_heads(source.config, folder_);
  if (others.empty()) return;
  notices_.push_back(
      fmt::format("weights: {} tensors of the folder are no part of the model, so they are not "
                  "loaded and not saved with it; the first is '{}'",
                  others.size(), others.front()));
}

void SourceWeights::load(Trainer& trainer) const {
  load([&trainer](ParameterId id, uint64_t first, std::span<const float> values) {
    trainer.write_parameter(id, first, values);
  });
}

void SourceWeights::load(const TakeWeights& take) const {
  const bool live = ::isatty(STDERR_FILENO) != 0;
  load_weights(folder_, tensors_, take,
               [live, shown = uint64_t{0}](uint64_t done, uint64_t total) mutable {
                 const uint64_t percent = 100 * done / total;
                 if (!live || (percent == shown && done < total)) return;
                 shown = percent;
                 say(fmt::format("\rloading weights: {} %{}", percent, done == total ? "\n" : ""));
               });
}

}  // namespace ebb
