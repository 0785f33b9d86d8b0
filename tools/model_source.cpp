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
#include "model_zoo/hugging_face_config.h"
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

/// The snapshot of the branch "main", or the only one.
std::optional<fs::path> find_snapshot(const fs::path& model) {
  const std::string revision = first_word(model / "refs" / "main");
  std::error_code error;
  if (!revision.empty() && fs::is_directory(model / "snapshots" / revision, error)) {
    return model / "snapshots" / revision;
  }
  std::vector<fs::path> snapshots;
  for (const auto& entry : fs::directory_iterator(model / "snapshots", error)) {
    snapshots.push_back(entry.path());
  }
  return snapshots.size() == 1 ? std::optional(snapshots.front()) : std::nullopt;
}

bool is_hub_id(const std::string& name) {
  return !name.empty() && name.front() != '/' && name.front() != '.' && name.front() != '~' &&
         std::count(name.begin(), name.end(), '/') <= 1 && name.back() != '/';
}

}  // namespace

std::string find_model_folder(const std::string& name) {
  std::error_code error;
  if (fs::is_directory(name, error)) return name;
  if (!is_hub_id(name))
    throw ConfigError(fmt::format("--model '{}': there is no such folder", name));
  const fs::path model = hub_cache() / cache_name(name);
  if (const auto snapshot = find_snapshot(model)) return snapshot->string();
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
  return {
      .name = name, .folder = folder, .config = read_model_config(folder), .has_weights = !random};
}

SourceWeights::SourceWeights(const ModelSource& source, const Model& model)
    : folder_(source.folder), tensors_(match_tensors(source.config, model.parameters(), folder_)) {}

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
