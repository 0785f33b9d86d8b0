// Writes the weights of a folder: model.safetensors or, if this file would exceed a limit,
// model-00001-of-0000N.safetensors and so on with model.safetensors.index.json.
//
// The constructor gets all tensors; their content is written in any order afterwards. Every file is
// written by a SafetensorsWriter; the index is written last. Other files of the folder stay. If the
// folder is the temporary folder of a NewFolder (io/new_file.h), all files become visible at once.
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
  /// Distributes the tensors to files in the given order. The tensors of a file have at most
  /// `shard_bytes`, not counting the header, unless the file contains a single larger tensor.
  /// REQUIRES: the folder exists.
  SafetensorsFolderWriter(std::string folder, std::vector<TensorSpec> tensors,
                          uint64_t shard_bytes = kDefaultShardBytes, FileUse use = FileUse::Create);

  /// The tensors in the given order.
  std::span<const TensorSpec> tensors() const { return tensors_; }
  size_t num_files() const { return files_.size(); }
  /// As SafetensorsWriter::write_bytes() and write_floats(). `tensor`: an index of tensors().
  void write_bytes(size_t tensor, uint64_t first, std::span<const std::byte> bytes);
  void write_floats(size_t tensor, uint64_t first, std::span<const float> values);
  /// As those of SafetensorsWriter, for each file.
  void sync(const std::function<void()>& progress);
  std::vector<uint64_t> written_bytes() const;
  /// Syncs all files and renames them to their final names. REQUIRES: every byte was written once.
  /// `by_others`: of each file, the bytes that other processes have written and synced; empty:
  /// none.
  void finish(std::span<const uint64_t> by_others = {});

 private:
  struct Place {
    size_t file = 0;
    size_t tensor = 0;  ///< the index of the tensor in that file
  };
  std::string name_of_file(size_t file) const;
  std::string index() const;

  std::string folder_;
  std::vector<TensorSpec> tensors_;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
};

}  // namespace ebb
