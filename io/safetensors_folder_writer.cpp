#include "io/safetensors_folder_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "device/errors.h"
#include "io/json_text.h"

namespace ebb {

SafetensorsFolderWriter::SafetensorsFolderWriter(std::string folder,
                                                 std::vector<TensorSpec> tensors,
                                                 uint64_t shard_bytes, FileUse use)
    : folder_(std::move(folder)), tensors_(std::move(tensors)) {
  std::vector<std::vector<TensorSpec>> shards(1);
  std::unordered_set<std::string_view> names;
  uint64_t bytes = 0;  // of the last shard
  for (const TensorSpec& tensor : tensors_) {
    if (!names.insert(tensor.name).second) {
      throw ConfigError(fmt::format("'{}': tensor '{}' is given twice", folder_, tensor.name));
    }
    if (bytes + tensor.bytes() > shard_bytes && !shards.back().empty()) {
      shards.emplace_back();
      bytes = 0;
    }
    places_.push_back({shards.size() - 1, shards.back().size()});
    shards.back().push_back(tensor);
    bytes += tensor.bytes();
  }
  files_.resize(shards.size());  // names contain the number of files
  for (size_t i = 0; i < shards.size(); ++i) {
    files_[i] = std::make_unique<SafetensorsWriter>(
        folder_ + "/" + name_of_file(i), std::move(shards[i]),
        std::map<std::string, std::string>{{"format", "pt"}}, use);
  }
}

std::string SafetensorsFolderWriter::name_of_file(size_t file) const {
  if (files_.size() == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files_.size());
}

void SafetensorsFolderWriter::write_bytes(size_t tensor, uint64_t first,
                                          std::span<const std::byte> bytes) {
  const Place& place = places_.at(tensor);
  files_[place.file]->write_bytes(place.tensor, first, bytes);
}

void SafetensorsFolderWriter::write_floats(size_t tensor, uint64_t first,
                                           std::span<const float> values) {
  const Place& place = places_.at(tensor);
  files_[place.file]->write_floats(place.tensor, first, values);
}

std::string SafetensorsFolderWriter::index() const {
  nlohmann::json map = nlohmann::json::object();
  uint64_t bytes = 0, elements = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    map[tensors_[i].name] = name_of_file(places_[i].file);
    bytes += tensors_[i].bytes();
    elements += tensors_[i].num_elements();
  }
  const nlohmann::json index = {
      {"metadata", {{"total_parameters", elements}, {"total_size", bytes}}}, {"weight_map", map}};
  return json_text(index, 2) + "\n";
}

void SafetensorsFolderWriter::sync(const std::function<void()>& progress) {
  for (const auto& file : files_) file->sync(progress);
}

std::vector<uint64_t> SafetensorsFolderWriter::written_bytes() const {
  std::vector<uint64_t> bytes;
  for (const auto& file : files_) bytes.push_back(file->written_bytes());
  return bytes;
}

void SafetensorsFolderWriter::finish(std::span<const uint64_t> by_others) {
  for (size_t i = 0; i < files_.size(); ++i)
    files_[i]->finish(by_others.empty() ? 0 : by_others[i]);
  if (files_.size() > 1) write_new_file(folder_ + "/model.safetensors.index.json", index());
}

}  // namespace ebb
