#include "io/safetensors_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "device/errors.h"
#include "io/input_file.h"
#include "io/json_file.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// Reads the map from tensor to file name from the index.
std::map<std::string, std::string> read_weight_map(const std::string& index) {
  const Json json = read_json_file(index);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) {
    throw FormatError(index, 0,
                      "there is no object 'weight_map', which names the file of each tensor");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      throw FormatError(index, 0, "the file of tensor '" + tensor + "' is not a text");
    }
    const auto name = file.get<std::string>();
    if (name.find('/') != std::string::npos || !name.ends_with(".safetensors")) {
      throw FormatError(index, 0,
                        fmt::format("tensor '{}' is said to be in '{}': allowed is the name of a "
                                    ".safetensors file of the same folder",
                                    tensor, name));
    }
    files.emplace(tensor, name);
  }
  return files;
}

/// Whether a download by huggingface_hub into this folder, or into the snapshot in its cache, was
/// interrupted.
bool is_partly_downloaded(const fs::path& folder) {
  for (const char* place : {".cache/huggingface/download", "../../blobs"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder / place, error)) {
      if (entry.path().extension() == ".incomplete") return true;
    }
  }
  return false;
}

/// Weights that are not read, by the beginning and the end of their names.
struct OtherWeights {
  std::string_view begin, end;
  std::string_view reason;
};
constexpr std::string_view kSaveAgain =
    "is not read: load the model with transformers and save it as safetensors";
constexpr OtherWeights kOtherWeights[] = {
    {"adapter_model.", "", "is an adapter: give the folder of the whole model"},
    {"model.safetensors.index.", ".json",
     "is the index of a variant: load the model with transformers and `variant`, and save it "
     "without"},
    {"model-", ".safetensors",
     "is a part: the file model.safetensors.index.json, which names the parts, is missing; "
     "download it too"},
    {"consolidated", ".safetensors",
     "has other names of tensors than transformers: download the files of model.safetensors too"},
    {"model.", ".safetensors", "is a variant: rename it to model.safetensors"},
    {"", ".safetensors", "has another name: rename it to model.safetensors if it is the model"},
    {"model", ".gz", "is compressed: decompress it (gunzip)"},
    {"model", ".zst", "is compressed: decompress it (zstd -d)"},
    {"model", ".xz", "is compressed: decompress it (xz -d)"},
    {"", ".gguf", "is not read: give the folder of the model that it was made from"},
    {"pytorch_model", ".bin", kSaveAgain},
    {"pytorch_model", ".bin.index.json", kSaveAgain},
    {"", ".pth", kSaveAgain},
    {"", ".pt", kSaveAgain},
    {"tf_model", ".h5", kSaveAgain},
    {"flax_model", ".msgpack", kSaveAgain},
};

/// Says what the folder has in place of the weights; empty if nothing is recognised.
std::string describe_other_weights(const std::string& folder) {
  std::error_code error;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.insert(entry.path().filename().string());
  }
  for (const OtherWeights& other : kOtherWeights) {
    for (const std::string& name : names) {
      if (!name.starts_with(other.begin) || !name.ends_with(other.end)) continue;
      return fmt::format("; its '{}' {}", name, other.reason);
    }
  }
  return "";
}

[[noreturn]] void throw_no_weights(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw ConfigError("'" + folder + "' is not a folder with a model");
  }
  const std::string reason = is_partly_downloaded(folder)
                                 ? "; its download is incomplete: run `hf download` again"
                                 : describe_other_weights(folder);
  throw ConfigError(fmt::format("'{}' has neither {} nor {}{}", folder, kSingle, kIndex, reason));
}

/// Refuses an index that names files that the folder does not have.
void check_files_exist(const std::string& folder, const std::string& index,
                       const std::set<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!is_entry((fs::path(folder) / name).string())) missing.push_back(name);
  }
  if (missing.empty()) return;
  throw ConfigError(fmt::format(
      "'{}' names {} files, of which the folder lacks {}: '{}'{}; download the model again with "
      "`hf download`, or copy all of its files",
      index, names.size(), missing.size(), missing.front(), missing.size() > 1 ? ", ..." : ""));
}

/// The files of weights that model.safetensors makes superfluous: those that the index names, and
/// those with the usual names of parts ("model-00001-of-00002.safetensors").
std::set<std::string> find_parts(const std::string& folder, const std::string& index) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_part = name.starts_with("model-") && name.find("-of-") != std::string::npos;
    if (is_part && name.ends_with(".safetensors")) names.insert(name);
  }
  if (!is_entry(index)) return names;
  try {
    for (const auto& [tensor, file] : read_weight_map(index)) names.insert(file);
  } catch (const Error&) {
    names.insert(fs::path(index).filename().string());  // it is not needed
  }
  names.erase(kSingle);
  return names;
}

std::string left_out_notice(const std::string& folder, const std::string& index) {
  const std::set<std::string> parts = find_parts(folder, index);
  if (parts.empty()) return "";
  return fmt::format(
      "weights: only '{}/{}' is read, as transformers does; the folder's other weights are left "
      "out: '{}'{}{}; remove the files that are not the model",
      folder, kSingle, *parts.begin(),
      parts.size() > 1 ? fmt::format(" and {} more", parts.size() - 1) : "",
      is_entry(index) ? fmt::format(" ({})", kIndex) : "");
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(std::string folder) : folder_(std::move(folder)) {
  const std::string single = (fs::path(folder_) / kSingle).string();
  const std::string index = (fs::path(folder_) / kIndex).string();
  if (is_entry(single)) {
    files_.emplace_back(single);
    notice_ = left_out_notice(folder_, index);
  } else if (is_entry(index)) {
    open_indexed(index);
  } else {
    throw_no_weights(folder_);
  }
  list_tensors();
}

void SafetensorsFolder::open_indexed(const std::string& index) {
  const std::map<std::string, std::string> weight_map = read_weight_map(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  check_files_exist(folder_, index, names);
  for (const std::string& name : names) {
    const SafetensorsFile& file = files_.emplace_back((fs::path(folder_) / name).string());
    for (const StoredTensor& tensor : file.tensors()) {
      const auto at = weight_map.find(tensor.name);
      if (at != weight_map.end() && at->second == name) continue;
      throw FormatError(
          file.path(), tensor.offset,
          fmt::format("tensor '{}' is here, but the index {}", tensor.name,
                      at == weight_map.end() ? "does not name it" : "says in " + at->second));
    }
  }
  size_t num_found = 0;
  for (const SafetensorsFile& file : files_) num_found += file.tensors().size();
  if (num_found == weight_map.size()) return;
  for (const auto& [tensor, name] : weight_map) {
    for (const SafetensorsFile& file : files_) {
      if (fs::path(file.path()).filename() != name || file.find(tensor) != nullptr) continue;
      throw FormatError(index, 0, fmt::format("tensor '{}' is not in '{}'", tensor, name));
    }
  }
}

void SafetensorsFolder::list_tensors() {
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      by_name_.emplace(tensor.name, tensors_.size());
      tensors_.push_back({&file, &tensor});
      total_bytes_ += tensor.bytes();
    }
  }
}

const LocatedTensor* SafetensorsFolder::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

}  // namespace ebb
