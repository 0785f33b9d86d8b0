#include "tools/model_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "device/errors.h"
#include "io/foreign_content.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/model_files.h"
#include "model_zoo/presets.h"
#include "tools/cli.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The folder of Hugging Face's local cache.
fs::path hub_cache() {
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  const std::string cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? fs::path(variable("HOME")) / ".cache" : fs::path(cache)) / "huggingface" /
         "hub";
}

/// "models--org--name"
std::string cache_name(std::string id) {
  for (size_t at = 0; (at = id.find('/', at)) != std::string::npos;) id.replace(at, 1, "--");
  return "models--" + id;
}

/// The content of a file up to the first white space; empty if there is no file.
std::string first_word(const fs::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

/// The sorted paths of the snapshots of a model in the cache.
std::vector<std::string> snapshots_of(const fs::path& model) {
  std::error_code error;
  std::vector<std::string> snapshots;
  for (const auto& entry : fs::directory_iterator(model / "snapshots", error)) {
    if (entry.is_directory(error)) snapshots.push_back(entry.path().string());
  }
  std::sort(snapshots.begin(), snapshots.end());
  return snapshots;
}

/// The snapshot of the branch "main"; without a branch, the only snapshot. nullopt if the cache has
/// no snapshot. Throws ConfigError that lists the snapshots if the choice is not clear.
std::optional<std::string> find_snapshot(const std::string& name, const fs::path& model) {
  const fs::path branch = model / "refs" / "main";
  const std::string revision = first_word(branch);
  const std::vector<std::string> snapshots = snapshots_of(model);
  const std::string wanted = (model / "snapshots" / revision).string();
  if (!revision.empty() && std::ranges::find(snapshots, wanted) != snapshots.end()) return wanted;
  if (snapshots.empty()) return std::nullopt;
  if (revision.empty() && snapshots.size() == 1) return snapshots.front();
  const std::string reason =
      revision.empty()
          ? fmt::format("'{}' does not exist, and there are several snapshots", branch.string())
          : fmt::format("'{}' names the snapshot '{}', which does not exist", branch.string(),
                        revision);
  throw ConfigError(fmt::format("--model '{}': {}; give the folder of a snapshot: '{}'", name,
                                reason, fmt::join(snapshots, "', '")));
}

bool is_hub_id(const std::string& name) {
  return !name.empty() && name.front() != '/' && name.front() != '.' && name.front() != '~' &&
         std::count(name.begin(), name.end(), '/') <= 1 && name.back() != '/';
}

}  // namespace

std::string find_model_folder(const std::string& name) {
  std::error_code error;
  if (fs::is_directory(name, error)) {
    // The folder of a model in the cache has no config.json itself.
    if (fs::exists(fs::path(name) / "config.json", error)) return name;
    return find_snapshot(name, name).value_or(name);
  }
  refuse_broken_link(name);
  if (fs::exists(name, error)) {
    throw ConfigError(fmt::format("--model '{}': this is a file; give its folder", name));
  }
  if (!is_hub_id(name))
    throw ConfigError(fmt::format("--model '{}': there is no such folder", name));
  const fs::path model = hub_cache() / cache_name(name);
  if (const auto snapshot = find_snapshot(name, model)) return *snapshot;
  throw ConfigError(fmt::format(
      "--model '{}': there is no such folder, and no snapshot of a model of this name in '{}'; "
      "download it with `hf download {}`",
      name, model.string(), name));
}

ModelSource preset_source(const std::string& name) {
  return {.name = name, .folder = {}, .config = find_preset(name).config};
}

ModelSource folder_source(const std::string& name, bool random) {
  const std::string folder = find_model_folder(name);
  check_model_files(folder);
  const ModelConfig config = read_model_config(folder);
  return {.name = name,
          .folder = folder,
          .config = config,
          .has_weights = !random,
          .dropout = read_config_dropout(folder)};
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
