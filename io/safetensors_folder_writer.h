// Writes the weights of a folder: model.safetensors, or, where that would be larger than a limit,
// model-00001-of-0000N.safetensors and so on with model.safetensors.index.json.
//
// All tensors are named first, then filled in any order. Every file is as safetensors_writer.h
// says; the index comes last. A set of files becomes visible at once where the folder is a
// NewFolder.
//
// Thread-safety and errors: as SafetensorsWriter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors_writer.h"

namespace ebb {

inline constexpr uint64_t kDefaultShardBytes = 5'000'000'000;

class SafetensorsFolderWriter {
 public:
  /// Tensors go to files in the order given; only one that is larger than `shard_bytes` makes a
  /// file larger. The folder exists.
  SafetensorsFolderWriter(std::string folder, std::vector<TensorSpec> tensors,
                          uint64_t shard_bytes = kDefaultShardBytes);

  /// As given.
  std::span<const TensorSpec> tensors() const { return tensors_; }
  size_t num_files() const { return files_.size(); }
  void write_bytes(size_t tensor, uint64_t first, std::span<const std::byte> bytes);
  void write_floats(size_t tensor, uint64_t first, std::span<const float> values);
  /// Synced and in place. REQUIRES: every byte was written once.
  void finish();

 private:
  struct Place {
    size_t file = 0;
    size_t tensor = 0;  ///< of that file
  };
  std::string name_of_file(size_t file) const;
  std::string index() const;

  std::string folder_;
  std::vector<TensorSpec> tensors_;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
};

}  // namespace ebb
